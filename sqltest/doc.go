// Package sqltest runs the conformance suite of package storetest, and the
// benchmarks, against package sqlstore on real database drivers and servers.
//
// It is a module of its own so that no driver ever becomes a requirement of the
// root module. It is never tagged and not meant to be imported.
package sqltest
