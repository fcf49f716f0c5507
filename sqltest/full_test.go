//go:build full

package sqltest

const everyWay = true
