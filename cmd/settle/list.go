package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// migrate has nothing to do: the tables are made where the database is opened.
type migrate struct{}

func (*migrate) flags(*flag.FlagSet)  {}
func (*migrate) check([]string) error { return nil }

func (*migrate) run(_ context.Context, s *session, _ []string) error {
	all := sqlstore.Schema(s.dialect)
	last := all[len(all)-1]
	if s.json {
		return s.object(map[string]any{"dialect": s.dialect.String(), "version": last.Version})
	}
	_, err := fmt.Fprintf(s.out, "%s: the schema has version %d\n", s.dialect, last.Version)
	return err
}

// list prints one line for each operation.
type list struct {
	query       settle.Query
	states      string
	consequence string
	owner       string
	ids         bool
}

func (c *list) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.query.Kind, "kind", "", "only of this `kind`; settle.event for events that wait for their operation")
	fs.StringVar(&c.query.Scope, "scope", "", "only of this `scope`")
	fs.StringVar(&c.query.Subject, "subject", "", "only about this `subject`")
	fs.StringVar(&c.states, "state", "", "only in these `states`, separated by commas; open for all that are not settled")
	fs.StringVar(&c.owner, "owner", "", "only reviews of this `owner`; nobody for those without one")
	fs.StringVar(&c.consequence, "consequence", "", "only those whose consequence is `due` or aside (reads the confirmed ones one by one)")
	fs.DurationVar(&c.query.Overdue, "overdue", 0, "only what has been due for longer than this `duration` and nobody claimed")
	fs.StringVar(&c.query.After, "after", "", "only after this `id`")
	fs.IntVar(&c.query.Limit, "limit", 100, "at most so `many`; 0 for all")
	fs.BoolVar(&c.ids, "ids", false, "print ids only, for the other commands")
}

func (c *list) check([]string) (err error) {
	switch {
	case c.query.Limit < 0:
		return usageError("-limit must not be negative")
	case c.query.Overdue < 0:
		return usageError("-overdue must not be negative")
	case c.consequence != "" && c.consequence != string(settle.ConsequenceDue) && c.consequence != string(settle.ConsequenceAside):
		return usageError("-consequence is due or aside")
	}
	if c.query.States, err = statesOf(c.states); err != nil {
		return err
	}
	if c.owner != "" {
		c.query.States = []settle.State{settle.StateReview}
	}
	if c.consequence != "" {
		c.query.States = []settle.State{settle.StateSucceeded}
	}
	return nil
}

// statesOf reads names of states, or open.
func statesOf(names string) (out []settle.State, err error) {
	if names == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		switch s := settle.State(strings.TrimSpace(name)); {
		case s == "open":
			out = append(out, open()...)
		case slices.Contains(settle.States(), s):
			out = append(out, s)
		default:
			return nil, usageError("there is no state " + name)
		}
	}
	return out, nil
}

// open lists the states that are not settled.
func open() []settle.State {
	return slices.DeleteFunc(settle.States(), settle.State.Settled)
}

func (c *list) matches(r *settle.Record) bool {
	if c.consequence != "" && string(r.Consequence) != c.consequence {
		return false
	}
	if c.owner == "" {
		return true
	}
	owner := ""
	if r.Review != nil {
		owner = r.Review.Owner
	}
	return owner == c.owner || owner == "" && c.owner == "nobody"
}

func (c *list) run(ctx context.Context, s *session, _ []string) error {
	q, limit := c.query, c.query.Limit
	if c.owner != "" || c.consequence != "" {
		q.Limit = 0 // what matches is counted here
	}
	var t *table
	if !s.json && !c.ids {
		t = newTable(s.out, "", "ID", "KIND", "STATE", "AGE", "SCOPE", "SUBJECT", "PURPOSE", "ABOUT")
	}
	n := 0
	for r, err := range s.engine.List(ctx, q) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if !c.matches(&r) {
			continue
		}
		switch {
		case c.ids:
			_, err = fmt.Fprintln(s.out, clean(r.ID))
		case s.json:
			err = s.object(summarize(r))
		default:
			t.line("", r.ID, r.Kind, string(r.State), age(r.AsOf.Sub(r.CreatedAt)), r.Scope, r.Subject, r.Purpose, about(r))
		}
		if err != nil {
			return err
		}
		if n++; limit > 0 && n == limit {
			break
		}
	}
	if t != nil {
		return t.flush()
	}
	return nil
}

// about is what a person wants to know first.
func about(r settle.Record) string {
	var out []string
	v := summarize(r)
	if x := v.Review; x != nil {
		out = append(out, x.Reason)
		if x.Owner != "" {
			out = append(out, "owner "+x.Owner)
		}
		if x.Overdue {
			out = append(out, "overdue")
		} else {
			out = append(out, "until "+stamp(x.Deadline))
		}
	}
	if r.Consequence == settle.ConsequenceDue || r.Consequence == settle.ConsequenceAside {
		out = append(out, "consequence "+string(r.Consequence))
	}
	if v.Review == nil && r.Code != "" && (r.State == settle.StateFailed || r.State == settle.StateCanceled) {
		out = append(out, r.Code)
	}
	if r.Withdrawn != "" {
		out = append(out, "withdrawn: "+legible(r.Withdrawn))
	}
	if v.Claimed {
		out = append(out, "claimed")
	}
	if late := r.AsOf.Sub(r.Due); !r.Due.IsZero() && late > time.Minute {
		out = append(out, "due for "+age(late))
	}
	out = append(out, v.Alarms...)
	return strings.Join(slices.Compact(out), ", ")
}
