package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// secretRecord has a secret wherever one may be, in review, with a consequence that was set aside.
func secretRecord(id string, state settle.State) settle.Record {
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	r := settle.Record{
		ID: id, Scope: "tenant-1", Kind: "charge", Key: "SECRET-key-" + id, Subject: "order-" + id, Purpose: "purchase", ProviderKey: "SECRET-provider-key",
		Account: "stripe/acct_1/eu/test", Fingerprint: settle.Fingerprint{Rule: "json-1", Sum: "SECRET-fingerprint"},
		Request: settle.Payload(`{"pan":"SECRET-request"}`), Result: settle.Payload(`SECRET-result, not JSON`), Token: "SECRET-token",
		Terms:    settle.Terms{Amount: settle.Minor(100, "EUR"), Other: map[string]string{"customer": "SECRET-term"}},
		Attempts: []settle.Attempt{{N: 1, Start: at, End: at}},
		References: []settle.Reference{{
			Ref: "ch_" + id, Rank: settle.RankDisputed, Mismatch: true, Foreign: true, Owner: "other-id", Terms: settle.Terms{Other: map[string]string{"customer": "SECRET-seen"}},
		}},
		Ledger:   []settle.Posting{{Ref: "ch_" + id, Amount: settle.Minor(10, "EUR"), Status: settle.PostingDone, External: "re_9"}},
		Progress: &settle.Progress{State: settle.StateActionRequired, Action: "https://pay.example/SECRET-action", Since: at},
		Code:     "card_declined", Message: "SECRET-message", State: state,
		Review:   &settle.Review{Reason: settle.ReasonDisputed, Since: at, Deadline: at},
		Approval: &settle.Approval{By: "ann", At: at, Fingerprint: "SECRET-fingerprint"},
	}
	if state == settle.StateSucceeded {
		r.References[0].Rank, r.References[0].Mismatch, r.Consequence = settle.RankSucceeded, false, settle.ConsequenceAside
	}
	return r
}

// No request, result, key, message or credential is printed by any command, in any form, whether
// it succeeds or fails, unless -payload asks for it.
func TestI16_NothingSecretIsPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settle.db")
	c := tool{t, "sqlite:" + path}
	c.do("migrate")
	db, _, err := connect(c.dsn, reads)
	must(t, err)
	defer db.Close()
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	must(t, err)
	defer func() { _ = store.Close() }()
	put := func(r settle.Record) {
		t.Helper()
		_, err := store.Commit(t.Context(), settle.Change{ID: "c-" + r.ID, Writes: []settle.Write{{Record: r, DueIn: time.Hour, Entry: settle.Entry{To: r.State}}}})
		must(t, err)
	}
	for _, id := range []string{"a1", "a2", "a3"} {
		put(secretRecord(id, settle.StateReview))
	}
	put(secretRecord("b1", settle.StateSucceeded))
	by := []string{"-by", "ann", "-reason", "r"}
	resolve := func(as string, more ...string) []string {
		return append(append([]string{"resolve", "-as", as, "-evidence", "e"}, by...), more...)
	}
	said := 0
	for _, args := range [][]string{
		{"migrate"},
		{"list"},
		{"list", "-ids"},
		{"list", "-owner", "nobody"},
		{"stats"},
		{"show", "a1"},
		{"show", "b1"},
		{"show", "nobody"},
		append([]string{"assign", "-to", "ben", "a1", "b1", "nobody"}, by...),
		resolve("declined", "a1", "b1"), resolve("not_applied", "a1"), resolve("applied", "a1"), resolve("reversed", "a2"), resolve("resume", "a3"),
		append([]string{"redrive", "b1", "a1"}, by...),
		{"watch", "nobody"},
		{"help", "show"},
		{"-dsn", "postgres://app:SECRET-password@127.0.0.1:1/x?connect_timeout=1", "list"},
		{"-dsn", "postgres://app:SECRET-password@127.0.0.1:port/x", "list"},
		{"-dsn", "mysql://app:SECRET-password@127.0.0.1:1/x", "list"},
		{"-dsn", "mysql://app:SECRET-password@127.0.0.1:1/x?loc=SECRET", "list"},
		{"-dsn", "app:SECRET-password@tcp(127.0.0.1:1", "list"},
		{"-dsn", "SECRET-password", "list"},
		{"-dsn", "sqlserver://app:SECRET-password@db", "list"},
		{"-dsn", "mysql://app:SECRET-password@db", "help", "list"},
	} {
		for _, form := range [][]string{args, append([]string{"-json"}, args...)} {
			got := c.in("", form...)
			if got.out+got.err == "" {
				t.Errorf("%v says nothing", args)
			}
			if i := strings.Index(got.out+got.err, "SECRET"); i >= 0 {
				t.Errorf("settle %s prints …%.30s", strings.Join(args, " "), (got.out + got.err)[i:])
			}
			said++
		}
	}
	if said < 40 {
		t.Errorf("only %d runs", said)
	}
	// The test bites: the same record, when it is asked for.
	for _, form := range []string{"-json", "-payload"} {
		got := c.do("show", form, "-payload", "a1")
		for _, what := range []string{"key", "provider-key", "fingerprint", "request", "term", "seen", "action", "message"} {
			if !strings.Contains(got, "SECRET-"+what) {
				t.Errorf("show %s does not print the %s", form, what)
			}
		}
		if !strings.Contains(got, "re_9") || !strings.Contains(got, "other-id") {
			t.Errorf("show %s says nothing of what others did: %s", form, got)
		}
		if !strings.Contains(got, "base64:U0VDUkVULXJlc3VsdCwgbm90IEpTT04=") {
			t.Errorf("show %s does not print the result", form)
		}
		if strings.Contains(got, "SECRET-token") {
			t.Errorf("show %s prints the claim's token", form)
		}
	}
}

// What others wrote does not steer the terminal of whoever reads it.
func TestNothingSteersTheTerminal(t *testing.T) {
	c := tool{t, "sqlite:" + filepath.Join(t.TempDir(), "settle.db")}
	c.do("migrate")
	db, _, err := connect(c.dsn, reads)
	must(t, err)
	defer db.Close()
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	must(t, err)
	defer func() { _ = store.Close() }()
	const evil = "\x1b[2J\u202e\r\n\u009b31m"
	r := secretRecord("a1", settle.StateReview)
	r.Subject, r.Code, r.Message, r.Token, r.Review.Owner = evil, evil, evil, "", evil
	r.Request = settle.Payload(evil)
	_, err = store.Commit(t.Context(), settle.Change{ID: "c", Writes: []settle.Write{{Record: r, DueIn: time.Hour, Entry: settle.Entry{Note: evil, Actor: evil}}}})
	must(t, err)
	for _, args := range [][]string{{"list"}, {"list", "-json"}, {"show", "a1"}, {"show", "-payload", "a1"}, {"show", "-json", "a1"}, {"show", "no" + evil}, {"x" + evil}} {
		got := c.in("", args...)
		if strings.ContainsAny(got.out+got.err, "\x1b\r") {
			t.Errorf("settle %q prints %q", args, got.out+got.err)
		}
		if args[len(args)-1] == "a1" && args[1] != "-json" && strings.ContainsAny(got.out, "\u202e\u009b") {
			t.Errorf("settle %q prints %q", args, got.out)
		}
	}
}
