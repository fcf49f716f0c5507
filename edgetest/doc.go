// Package edgetest tests package httpsettle with what people put around it: the routers chi, gin and echo, and a validator of
// OpenAPI 3.1 documents. It is a module of its own, so that none of them is required by anything else. There is nothing to import.
package edgetest
