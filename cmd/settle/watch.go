package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/settle-go/settle"
)

// watch asks the store again and again, and prints what was added to the histories. Operations
// that are open are seen whatever happens; one that comes and is settled between two looks is found
// by its id, which says when it was made. It changes nothing.
type watch struct {
	query settle.Query
	every time.Duration
}

// overlap is how far back a look goes for new operations: clocks of the hosts that make ids differ.
const overlap = 10 * time.Second

func (c *watch) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.query.Kind, "kind", "", "only of this `kind`")
	fs.StringVar(&c.query.Scope, "scope", "", "only of this `scope`")
	fs.DurationVar(&c.every, "every", 2*time.Second, "how `often` to look")
}

func (c *watch) check(ids []string) error {
	switch {
	case c.every < 100*time.Millisecond:
		return usageError("-every must be at least 100ms")
	case len(ids) > 0 && (c.query.Kind != "" || c.query.Scope != ""):
		return usageError("give ids, or -kind and -scope")
	}
	return nil
}

// seen is what is known of an operation that is watched.
type seen struct {
	version int64 // of the record when it was looked at
	entry   int64 // the last entry of the history that was printed
	open    bool
}

func (c *watch) run(ctx context.Context, s *session, ids []string) error {
	known := map[string]seen{}
	since := time.Now()
	for first := true; ; first = false {
		looked := time.Now()
		err := c.look(ctx, s, ids, known, since, first)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted: that is how it ends
		case err != nil && first:
			return err
		case err != nil: // a database that comes back is no reason to stop
			s.complain(trimmed(err))
		default:
			since = looked
		}
		timer := time.NewTimer(c.every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// look prints what is new since the last look. The first one only takes note of what there is.
func (c *watch) look(ctx context.Context, s *session, ids []string, known map[string]seen, since time.Time, first bool) error {
	now := map[string]settle.Record{}
	add := func(q settle.Query) error {
		for r, err := range s.engine.List(ctx, q) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			now[r.ID] = r
		}
		return nil
	}
	after, named := idAt(since.Add(-overlap)), len(ids) > 0
	if !named {
		q := c.query
		q.States = open()
		if err := add(q); err != nil {
			return err
		}
		q = c.query
		q.After = after
		if err := add(q); err != nil {
			return err
		}
		for id := range known {
			if _, have := now[id]; !have {
				ids = append(ids, id)
			}
		}
	}
	for _, id := range ids {
		r, err := s.engine.Get(ctx, id)
		switch {
		case errors.Is(err, settle.ErrNotFound) && !first:
			delete(known, id)
		case err != nil:
			return err
		default:
			now[id] = r
		}
	}
	if err := c.tell(ctx, s, now, known, after, first); err != nil {
		return err
	}
	for id, k := range known {
		if !named && !k.open && id < after {
			delete(known, id) // settled, and too old to be found as new
		}
	}
	return nil
}

// tell prints the entries that came since what is known, and takes note of them.
func (c *watch) tell(ctx context.Context, s *session, now map[string]settle.Record, known map[string]seen, after string, first bool) error {
	for _, id := range slices.Sorted(maps.Keys(now)) {
		r := now[id]
		k, met := known[id]
		if r.Version == k.version {
			continue
		}
		// One that was settled long ago and is open again: what happened before is no news.
		news := time.Time{}
		if !met && id < after {
			news = r.AsOf.Add(-c.every - overlap)
		}
		for x, err := range s.engine.History(ctx, id) {
			if err != nil {
				return err
			}
			if x.Seq <= k.entry {
				continue
			}
			k.entry = x.Seq
			if first || x.At.Before(news) {
				continue
			}
			if err := s.happened(r, x); err != nil {
				return err
			}
		}
		k.version = r.Version
		k.open = !r.State.Settled() || r.Consequence == settle.ConsequenceDue
		known[id] = k
	}
	return nil
}

// happened prints one entry.
func (s *session) happened(r settle.Record, x settle.Entry) error {
	v := told(x)
	if s.json {
		return s.object(struct {
			Kind    string `json:"kind"`
			Scope   string `json:"scope"`
			Subject string `json:"subject"`
			historyView
		}{r.Kind, r.Scope, r.Subject, v})
	}
	line := ""
	for i, cell := range v.cells() {
		switch {
		case cell == "":
			continue
		case i == 4:
			cell = "attempt " + cell
		}
		if line += cell + "  "; i == 0 {
			line += x.Operation + "  " + r.Kind + "  "
		}
	}
	_, err := fmt.Fprintln(s.out, clean(line[:len(line)-2]))
	return err
}

// idAt is less than the id of every operation that is made from t on: ids begin with milliseconds.
func idAt(t time.Time) string {
	ms := uint64(max(0, t.UnixMilli()))
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16, ms&0xffff)
}
