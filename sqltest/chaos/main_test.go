//go:build linux

package chaos

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestMain turns the test binary into a worker or a provider when it is started as one.
func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // connections break here all the time
	if text := os.Getenv(childEnv); text != "" {
		if err := childMain(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
