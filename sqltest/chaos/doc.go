// Package chaos tests the stores and the engine with faults that are real: connections cut at
// every round trip, processes and database servers killed, clocks that are wrong, and a provider
// that drops, delays and repeats. What the provider's ledger says is the verdict.
package chaos
