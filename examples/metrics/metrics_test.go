package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/internal/stage"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/storetest"
)

func TestProgram(t *testing.T) {
	stagetest.Says(t, func(ctx context.Context, out io.Writer, dir string) error { return run(ctx, out, dir, "") },
		"order-1: succeeded", "order-2: failed", "order-3: review", "order-4: succeeded", `settle_alarms_total{`, `settle_unsettled_count{`)
}

// place is a shop and its database.
type place struct {
	*watched
	t        *testing.T
	db       *sql.DB
	store    settle.Store
	provider *providertest.Provider
	claims   chan struct{} // a worker asks for work
	trouble  atomic.Bool   // the next commit fails
}

func begin(t *testing.T) *place {
	t.Helper()
	db, store, err := stage.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := &place{t: t, db: db, store: store, provider: providertest.New(&offer), claims: make(chan struct{}, 1)}
	wrapped := storetest.Wrap(store, func(c storetest.Call) (f storetest.Fault) {
		switch {
		case c.Op == storetest.OpClaim:
			select {
			case p.claims <- struct{}{}:
			default:
			}
		case c.Op == storetest.OpCommit && p.trouble.CompareAndSwap(true, false):
			f.Before = storetest.Fail(errors.New("the connection is gone"))
		}
		return f
	})
	if p.watched, err = newWatched(wrapped, p.provider, onSuccess); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *place) pay(order string) {
	p.t.Helper()
	got, err := p.charges.Execute(p.t.Context(), settle.Operation[providertest.Payment]{
		Subject: order, Purpose: "purchase", Key: "key-secret-" + order, Request: providertest.Payment{Amount: 198427, Currency: "EUR"},
	})
	if got.ID == "" {
		p.t.Fatal(err)
	}
}

// scrape returns the names of what is served, and all of it.
func (p *place) scrape() (names map[string]bool, text string) {
	p.t.Helper()
	text, err := scrape(p.t.Context(), p.metrics)
	if err != nil {
		p.t.Fatal(err)
	}
	names = map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names, text
}

// What /metrics serves after a real run has every metric that an alert reads, with the numbers of what happened.
func TestScrapeHasWhatAlertsRead(t *testing.T) {
	p := begin(t)
	p.provider.Script(providertest.DropReply(), providertest.Decline("card_declined"), providertest.WrongAmount(19))
	for i := range 4 {
		p.pay(fmt.Sprint("order-", i+1))
	}
	// Another process registered something of a kind that nobody here has, an hour ago, and is gone.
	gone, err := settle.Open(p.store, &settle.Options{Scope: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	payouts, err := settle.New(gone, "payout", providertest.ChargeAdapter(p.provider, providertest.Promise(&offer)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payouts.Register(t.Context(), settle.Operation[providertest.Payment]{
		Subject: "supplier-1", Purpose: "invoice", Request: providertest.Payment{Amount: 1, Currency: "EUR"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.db.ExecContext(t.Context(), `UPDATE settle_operation SET due = due - 3600000000 WHERE state = 'created'`); err != nil {
		t.Fatal(err)
	}
	p.trouble.Store(true)
	p.pay("order-5")
	stop := stagetest.Work(t, p.engine)
	<-p.claims // before it asks for work it looks for what nobody does
	stop()
	names, text := p.scrape()
	rules, err := os.ReadFile("../../otelsettle/monitoring/settle.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, m := range regexp.MustCompile(`\b(settle_[a-z_]+)[{)\[ ]`).FindAllStringSubmatch(string(rules), -1) {
		if m[1] != "settle_kind" && m[1] != "settle_alarm" {
			read[m[1]] = true
		}
	}
	if len(read) < 9 {
		t.Errorf("the alerts read only %v", read)
	}
	for name := range read {
		if !names[name] {
			t.Errorf("an alert reads %s, which is not served", name)
		}
	}
	for _, want := range []string{
		`settle_hook_errors_total{.*settle_kind="charge"} [1-9]`, `settle_no_answers_total{.*settle_kind="charge"} 1\b`,
		`settle_alarms_total{.*settle_alarm="duplicate_effect",settle_kind="charge"} 0\b`, `settle_alarms_total{.*settle_alarm="terms_mismatch",settle_kind="charge"} 1\b`,
		`settle_unsettled_count{.*settle_kind="payout",settle_state="created"} 1\b`, `settle_unclaimed_count{.*settle_kind="payout"} 1\b`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s", want)
		}
	}
}

// A hundred times the operations are not one series more, and nothing of a request is in any of them (I16).
func TestScrapeIsBoundedAndSaysNothing(t *testing.T) {
	p := begin(t)
	load := func(from, to int) {
		for i := from; i < to; i++ {
			p.provider.Script(providertest.DropReply(), providertest.Decline("code-secret"))
			p.pay(fmt.Sprint("order-secret-", i, "-a"))
			p.pay(fmt.Sprint("order-secret-", i, "-b"))
		}
	}
	count := func() (n int) {
		_, text := p.scrape()
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "settle_") {
				n++
			}
		}
		for _, secret := range []string{"secret", "198427", "EUR", "ch_", "order-", "shop"} {
			if strings.Contains(text, secret) {
				t.Errorf("the scrape says %q", secret)
			}
		}
		return n
	}
	load(0, 2)
	few := count()
	load(2, 200)
	if many := count(); many != few || few < 50 {
		t.Errorf("%d series after 4 operations, %d after 400", few, many)
	}
}
