package main

import (
	"bytes"
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// What is sealed is shown as that, in every command, and never as garbage.
func TestSealedIsShownAsSealed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "settle.db")
	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, sqlstore.EnsureSchema(t.Context(), db, sqlstore.SQLite()))
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	must(t, err)
	r := rig.New(t, store, &providertest.Options{KeyWindow: 24 * time.Hour})
	p := r.Start(&settle.Options{Sealer: scenario.NewKeyset("k1")})
	out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 1999, "EUR"))
	must(t, err)
	must(t, p.Charges.Cancel(t.Context(), rig.Intent("order-2"), "he moved to Baker Street"))
	gone := ""
	for rec, err := range p.List(t.Context(), settle.Query{Subject: "order-2"}) {
		must(t, err)
		gone = rec.ID
	}
	for _, args := range [][]string{
		{"show", "-payload", out.ID}, {"show", "-payload", "-json", out.ID}, {"show", gone}, {"show", "-json", gone}, {"list"}, {"list", "-json"},
	} {
		var text, errs bytes.Buffer
		code := run(context.WithoutCancel(t.Context()), append([]string{"-dsn", "sqlite:" + file}, args...), strings.NewReader(""), &text, &errs)
		if code != 0 {
			t.Fatalf("%v: exit code %d, %s", args, code, errs.String())
		}
		if strings.Contains(text.String(), "Baker") || strings.Contains(text.String(), "sealed:1:") || strings.Contains(text.String(), "base64:") {
			t.Errorf("%v prints what is sealed:\n%s", args, text.String())
		}
		if args[0] == "show" && !strings.Contains(text.String(), "sealed, ") {
			t.Errorf("%v does not say that something is sealed:\n%s", args, text.String())
		}
	}
}
