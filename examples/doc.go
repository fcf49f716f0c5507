// Package examples holds runnable programs that use settle, one in each folder,
// and a test for each.
//
// It is a module of its own so that what a program needs (a database driver, a
// provider's SDK) never becomes a requirement of the root module. It is never
// tagged and not meant to be imported.
package examples
