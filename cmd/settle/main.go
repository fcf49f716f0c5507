// Command settle shows and decides the operations in a store: for whoever is called at night.
//
//	export SETTLE_DSN=postgres://app@db/app
//	settle list -state review
//	settle show ID
//	settle assign -to payments -by ann -reason "knows the bank" -within 4h ID
//	settle resolve -as not_applied -by ann -reason "not in the dashboard" -evidence "ticket 7" ID
//
// It has no executors, so it sends nothing to any provider: what follows from a decision is the
// workers' to do. It prints no request, result, key or message of a provider unless -payload is given.
//
// It exits with 0, with 1 if something failed, with 2 if it was called wrongly.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
