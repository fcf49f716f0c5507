//go:build !full

package sqltest

// everyWay says whether a suite runs in every way: on each driver and isolation level, and with each variant of a trace. `make test`
// runs it in one way on each database, `make test-life` in the others too.
const everyWay = false
