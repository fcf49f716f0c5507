package main

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestMain lets more tests run beside each other than there are processors: they wait for servers.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(8))
	}
	os.Exit(m.Run())
}
