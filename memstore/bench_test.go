package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

func benchRecord(n int) settle.Record {
	id := "01900000-0000-7000-8000-" + strconv.Itoa(100_000_000_000+n)
	return settle.Record{
		ID: id, Scope: "tenant-1", Kind: "payment", Key: "order-" + id, Subject: "order-" + id, Purpose: "purchase",
		ProviderKey: "settle-" + id, Account: "acme/acct-1//live", State: settle.StateSubmitting, Token: id,
		Request:  settle.Payload(`{"order":"8472","amount":1999,"currency":"EUR","customer":"cus_123"}`),
		Attempts: []settle.Attempt{{N: 1, Grace: time.Minute}},
	}
}

// BenchmarkLife is a first Execute's share of the store: registration with its
// attempt, the outcome, and two reads. The store is emptied now and then, so that
// this measures the store and not the growth of the heap.
func BenchmarkLife(b *testing.B) {
	s, ctx := New(nil), b.Context()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%2000 == 0 {
			s = New(nil)
		}
		r := benchRecord(n)
		if _, err := s.Get(ctx, settle.ByKey(r.Scope, r.Kind, r.Key)); err == nil {
			b.Fatal("not new")
		}
		out, err := s.Commit(ctx, settle.Change{ID: r.ID, Writes: []settle.Write{{Record: r, DueIn: time.Minute}}})
		if err != nil {
			b.Fatal(err)
		}
		r = out[0]
		r.State, r.Token = settle.StateSucceeded, ""
		r.References = []settle.Reference{{Ref: r.ID, Rank: settle.RankSucceeded}}
		r.Result = settle.Payload(`{"id":"pi_123"}`)
		_, err = s.Commit(ctx, settle.Change{ID: r.Subject, Writes: []settle.Write{{Record: r, IfVersion: 1, DueIn: settle.Never}}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Get(ctx, settle.ByID(r.ID)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitUpdate(b *testing.B) {
	s, ctx := New(nil), b.Context()
	r := benchRecord(0)
	ids := make([]string, 64) // few enough to keep the history's growth out of it
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%len(ids) == 0 {
			r = benchRecord(n)
			r.Version = 0
		}
		out, err := s.Commit(ctx, settle.Change{ID: ids[n%len(ids)], Writes: []settle.Write{{Record: r, IfVersion: r.Version, DueIn: time.Minute}}})
		if err != nil {
			b.Fatal(err)
		}
		r = out[0]
	}
}

func BenchmarkGet(b *testing.B) {
	s, ctx := New(nil), b.Context()
	r := benchRecord(0)
	if _, err := s.Commit(ctx, settle.Change{ID: r.ID, Writes: []settle.Write{{Record: r, DueIn: time.Minute}}}); err != nil {
		b.Fatal(err)
	}
	for name, by := range map[string]settle.Index{"id": settle.ByID(r.ID), "key": settle.ByKey(r.Scope, r.Kind, r.Key)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Get(ctx, by); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClaim has ten rows due among a hundred thousand that are not.
func BenchmarkClaim(b *testing.B) {
	s, ctx := New(nil), b.Context()
	for i := range 100_000 {
		w := settle.Write{Record: benchRecord(i), DueIn: settle.Never}
		if i%2 == 0 {
			w.DueIn = time.Hour
		}
		if i%10_000 == 0 {
			w.DueIn = 0
		}
		if _, err := s.Commit(ctx, settle.Change{ID: w.Record.ID, Writes: []settle.Write{w}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Claim(ctx, settle.Claim{Kinds: []string{"payment"}, Token: "t", Lease: time.Microsecond, Limit: 10}); err != nil {
			b.Fatal(err)
		}
	}
}
