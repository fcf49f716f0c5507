package main

import (
	"cmp"
	"context"
	"flag"
	"slices"
	"strconv"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// stats counts operations.
type stats struct {
	kind    string
	overdue time.Duration
}

func (c *stats) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.kind, "kind", "", "only of this `kind`")
	fs.DurationVar(&c.overdue, "overdue", time.Minute, "count as overdue what has been due for longer than this `duration` and nobody claimed")
}

func (c *stats) check([]string) error {
	if c.overdue < 0 {
		return usageError("-overdue must not be negative")
	}
	return nil
}

type statsView struct {
	Kind    string  `json:"kind"`
	State   string  `json:"state"`
	Settled bool    `json:"settled"`
	Count   int64   `json:"count"`
	Oldest  float64 `json:"oldest_seconds"`
	Newest  float64 `json:"newest_seconds"`
	Overdue int64   `json:"overdue"`
}

func (c *stats) run(ctx context.Context, s *session, _ []string) error {
	all, err := s.store.Tally(ctx, c.overdue)
	if err != nil {
		return err
	}
	// In the order of an operation's life.
	order := map[settle.State]int{}
	for i, state := range settle.States() {
		order[state] = i
	}
	var t *table
	if !s.json {
		t = newTable(s.out, "", "KIND", "STATE", "COUNT", "OLDEST", "NEWEST", "OVERDUE")
	}
	slices.SortFunc(all, func(a, b sqlstore.Tally) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(order[a.State], order[b.State]))
	})
	for _, x := range all {
		if c.kind != "" && x.Kind != c.kind || x.Kind == settle.RetentionKind {
			continue // the record of how far retention has come is nobody's operation
		}
		oldest, newest := x.AsOf.Sub(x.Oldest), x.AsOf.Sub(x.Newest)
		if t != nil {
			t.line("", x.Kind, string(x.State), strconv.FormatInt(x.Count, 10), age(oldest), age(newest), strconv.FormatInt(x.Overdue, 10))
			continue
		}
		if err := s.object(statsView{x.Kind, string(x.State), x.State.Settled(), x.Count, oldest.Seconds(), newest.Seconds(), x.Overdue}); err != nil {
			return err
		}
	}
	if t != nil {
		return t.flush()
	}
	return nil
}
