package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
)

// ids replaces an argument of - by the ids that stand on the standard input, the first word of each line.
func (s *session) ids(args []string) (out []string, err error) {
	for _, a := range args {
		if a != "-" {
			out = append(out, a)
			continue
		}
		lines := bufio.NewScanner(s.in)
		for lines.Scan() {
			if words := strings.Fields(lines.Text()); len(words) > 0 {
				out = append(out, words[0])
			}
		}
		if lines.Err() != nil {
			return nil, usageError("the ids on the standard input cannot be read")
		}
	}
	return out, nil
}

// answer is what became of one operation of several.
type answer struct {
	ID    string `json:"operation"`
	From  string `json:"from,omitempty"`
	State string `json:"state,omitempty"`
	Owner string `json:"owner,omitempty"`
	Error string `json:"error,omitempty"`
}

// failed tells that something failed for one operation; the others go on.
func (s *session) failed(id string, err error) {
	s.failures++
	if s.json {
		_ = s.object(answer{ID: id, Error: trimmed(err)})
		return
	}
	s.complain(id + ": " + trimmed(err))
}

func (s *session) done(a answer, text string) error {
	if s.json {
		return s.object(a)
	}
	_, err := fmt.Fprintf(s.out, "%s  %s\n", clean(a.ID), clean(text))
	return err
}

// person is who decides, and why.
type person struct{ actor, reason string }

func (p *person) flags(fs *flag.FlagSet) {
	fs.StringVar(&p.actor, "by", "", "`who` decides, for the history (default: SETTLE_ACTOR)")
	fs.StringVar(&p.reason, "reason", "", "`why`, for the history; required")
}

func (p *person) check() error {
	if p.actor == "" {
		p.actor = os.Getenv("SETTLE_ACTOR")
	}
	switch {
	case p.actor == "":
		return usageError("-by or SETTLE_ACTOR is required")
	case p.reason == "":
		return usageError("-reason is required")
	}
	return nil
}

// assign gives reviews an owner.
type assign struct {
	person
	owner  string
	within time.Duration
}

func (c *assign) flags(fs *flag.FlagSet) {
	c.person.flags(fs)
	fs.StringVar(&c.owner, "to", "", "the new `owner`, a person or a team; required")
	fs.DurationVar(&c.within, "within", 0, "the owner's `time` to decide, from now on; 0 leaves the deadline as it is")
}

func (c *assign) check([]string) error {
	switch {
	case c.owner == "":
		return usageError("-to is required")
	case c.within < 0:
		return usageError("-within must not be negative")
	}
	return c.person.check()
}

func (c *assign) run(ctx context.Context, s *session, ids []string) error {
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := s.engine.Assign(ctx, id, settle.Assignment{Actor: c.actor, Reason: c.reason, Owner: c.owner, Within: c.within})
		if err != nil {
			s.failed(id, err)
			continue
		}
		v := summarize(r)
		text := "assigned to " + v.Review.Owner + ", until " + stamp(v.Review.Deadline)
		if err := s.done(answer{ID: id, State: v.State, Owner: v.Review.Owner}, text); err != nil {
			return err
		}
	}
	return nil
}

// resolve records a decision.
type resolve struct {
	person
	as, evidence, ref, amount string
	attempt                   int
	d                         settle.Decision
}

func (c *resolve) flags(fs *flag.FlagSet) {
	c.person.flags(fs)
	fs.StringVar(&c.as, "as", "", "`what` is so: applied (the effect exists, accepted as it is), declined (final, no effect), reversed (it was undone), "+
		"not_applied (no request had an effect: a new attempt follows), resume (let automation go on); required")
	fs.StringVar(&c.evidence, "evidence", "", "what shows it: a ticket, a `page`; required")
	fs.StringVar(&c.ref, "ref", "", "the provider's `reference` of the effect; needed if there are several")
	fs.StringVar(&c.amount, "amount", "", "what the effect is of, with its `unit`, e.g. \"1999 EUR/minor\" or \"19.99 EUR/major\"")
	fs.IntVar(&c.attempt, "attempt", 0, "the `number` of the last attempt that you know of: refused if a later one was made")
}

func (c *resolve) check(ids []string) error {
	if err := c.person.check(); err != nil {
		return err
	}
	c.d = settle.Decision{Actor: c.actor, Reason: c.reason, Evidence: c.evidence, Ref: c.ref, SeenAttempt: c.attempt}
	switch c.as {
	case "applied":
		c.d.Fact = settle.Applied
	case "declined":
		c.d.Fact = settle.Declined
	case "reversed":
		c.d.Fact = settle.Reversed
	case "not_applied":
		c.d.Fact = settle.NotApplied
	case "resume":
		c.d.Resume = true
	default:
		return usageError("-as is applied, declined, reversed, not_applied or resume")
	}
	if c.evidence == "" {
		return usageError("-evidence is required")
	}
	if len(ids) > 1 && (c.ref != "" || c.amount != "" || c.attempt != 0) {
		return usageError("-ref, -amount and -attempt speak of one operation")
	}
	if c.amount == "" {
		return nil
	}
	value, unit, _ := strings.Cut(c.amount, " ")
	n, err := decimal.NewFromString(value)
	if err != nil || !strings.HasSuffix(unit, "/minor") && !strings.HasSuffix(unit, "/major") {
		return usageError("-amount is a number and a unit: \"1999 EUR/minor\" or \"19.99 EUR/major\"")
	}
	c.d.Terms.Amount = settle.Amount{Value: n, Unit: unit}
	return nil
}

func (c *resolve) run(ctx context.Context, s *session, ids []string) error {
	before := map[string]settle.State{}
	for _, id := range ids {
		if r, err := s.engine.Get(ctx, id); err == nil {
			before[id] = r.State
		}
	}
	for _, x := range s.engine.ResolveAll(ctx, ids, c.d) {
		if x.Err != nil {
			s.failed(x.ID, x.Err)
			continue
		}
		from, to := string(before[x.ID]), string(x.Record.State)
		if err := s.done(answer{ID: x.ID, From: from, State: to}, from+" → "+to); err != nil {
			return err
		}
	}
	return nil
}

// redrive makes consequences due again.
type redrive struct{ person }

func (c *redrive) check([]string) error { return c.person.check() }

func (c *redrive) run(ctx context.Context, s *session, ids []string) error {
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.engine.Redrive(ctx, id, settle.By{Actor: c.actor, Reason: c.reason})
		var own *settle.Error
		switch {
		case errors.As(err, &own) && errors.Is(err, settle.ErrSettled):
			s.failed(id, fmt.Errorf("no consequence is due: it is %s", own.State))
		case err != nil:
			s.failed(id, err)
		default:
			if err := s.done(answer{ID: id, State: string(settle.StateSucceeded)}, "consequence due"); err != nil {
				return err
			}
		}
	}
	return nil
}
