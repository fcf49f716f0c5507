// Package readme runs the program of the README as it stands there.
package readme

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// frame is what the README leaves out: imports, the reader's own types, and an adapter.
const frame = `package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

type (
	Charge  = providertest.Payment
	Receipt = providertest.Receipt
)

func markPaid(ctx context.Context, tx settle.Tx, order string) error {
	_, err := sqlstore.Tx(tx).ExecContext(ctx, "CREATE TABLE paid AS SELECT '" + order + "' AS id")
	return err
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	options := &providertest.Options{KeyWindow: 24 * time.Hour}
	adapter := providertest.ChargeAdapter(providertest.New(options), providertest.Promise(options))
PROGRAM
}
`

func TestReadmeProgram(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```go\n")
	program, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the README has no program")
	}
	if n := strings.Count(program, "\n"); n > 30 {
		t.Errorf("the README's program has %d lines", n)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(strings.Replace(frame, "PROGRAM", program, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// The program is laid over a folder of this module, so that it finds the modules.
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "program", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", binary, "./program").CombinedOutput(); err != nil {
		t.Fatalf("the README's program does not compile: %v\n%s", err, out)
	}
	for range 2 { // the second run is a replay
		run := exec.CommandContext(t.Context(), binary)
		run.Dir = dir // where shop.db goes
		out, err := run.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "succeeded ") {
			t.Fatalf("the README's program says %q, %v", out, err)
		}
	}
}
