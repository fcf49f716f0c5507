package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/settle-go/settle"
)

// show prints all that is known about operations.
type show struct{ payload bool }

func (c *show) flags(fs *flag.FlagSet) {
	fs.BoolVar(&c.payload, "payload", false, "print request, result, keys and the provider's words too")
}

func (*show) check([]string) error { return nil }

func (c *show) run(ctx context.Context, s *session, ids []string) error {
	for i, id := range ids {
		r, err := s.engine.Get(ctx, id)
		var history []settle.Entry
		if err == nil {
			for x, xerr := range s.engine.History(ctx, id) {
				if err = xerr; err != nil {
					break
				}
				history = append(history, x)
			}
		}
		if err != nil {
			s.failed(id, err)
			continue
		}
		v := fully(r, history, c.payload)
		if s.json {
			err = s.object(v)
		} else {
			err = v.print(s.out, i > 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *full) print(w io.Writer, another bool) error {
	p := &printer{w: w}
	if another {
		p.text("")
	}
	p.text("operation %s", clean(v.ID))
	p.field("kind", v.Kind)
	p.field("scope", v.Scope)
	p.field("subject", v.Subject)
	p.field("purpose", v.Purpose)
	state := v.State
	if v.Claimed {
		state += ", claimed"
	}
	p.field("state", state)
	p.field("advice", settle.Next(v.Next).Advice())
	p.field("created", stamp(v.Created)+", "+age(v.AsOf.Sub(v.Created))+" ago")
	p.field("updated", stamp(v.Updated))
	if v.Due != nil {
		p.field("due", stamp(*v.Due))
	}
	p.field("account", v.Account)
	p.field("terms", v.Terms.text())
	if x := v.Review; x != nil {
		text := x.Reason + ", since " + stamp(x.Since) + ", until " + stamp(x.Deadline)
		if x.Overdue {
			text += " (overdue)"
		}
		p.field("review", text)
		p.field("owner", or(x.Owner))
	}
	p.field("code", v.Code)
	p.field("consequence", v.Consequence)
	p.field("alarms", strings.Join(v.Alarms, ", "))
	p.field("hold", v.Hold)
	if v.Undoes != nil {
		p.field("undoes", strings.TrimSpace(v.Undoes.Operation+" "+v.Undoes.Ref))
	}
	p.field("replaces", v.Replaces)
	p.field("replaced by", v.ReplacedBy)
	p.field("withdrawn", v.Withdrawn)
	if v.SendBefore != nil {
		p.field("send before", stamp(*v.SendBefore))
	}
	if v.RetryAt != nil {
		p.field("retry at", stamp(*v.RetryAt))
	}
	if v.PrunedAt != nil {
		p.field("pruned", stamp(*v.PrunedAt))
	}
	if a := v.Approval; a != nil {
		p.field("approved", strings.TrimSpace(a.By+", "+stamp(a.At)+" "+a.Note))
	}
	if g := v.Progress; g != nil {
		p.field("progress", g.State+", since "+stamp(g.Since))
	}
	p.field("hidden", strings.Join(v.Hidden, ", "))
	v.tables(p)
	v.Payload.print(p)
	return p.err
}

func (v *full) tables(p *printer) {
	p.table("attempts", []string{"N", "START", "END", "QUIET", "FATE", "CODE"}, len(v.Attempts), func(i int) []string {
		a := v.Attempts[i]
		return []string{strconv.Itoa(a.N), stamp(a.Start), stampOf(a.End), stampOf(a.Quiet), a.Fate, a.Code}
	})
	p.table("references", []string{"REF", "RANK", "TERMS", "NOTES"}, len(v.References), func(i int) []string {
		x := v.References[i]
		notes := strings.Join(x.Notes, ", ")
		if x.Owner != "" {
			notes += ", belongs to " + x.Owner
		}
		return []string{x.Ref, x.Rank, x.Terms.text(), strings.TrimPrefix(notes, ", ")}
	})
	p.table("effects", []string{"REF", "CONFIRMED", "AMOUNT", "RESERVED", "RETURNED", "LEFT"}, len(v.Effects), func(i int) []string {
		x := v.Effects[i]
		return []string{x.Ref, strconv.FormatBool(x.Confirmed), x.Amount, x.Reserved, x.Returned, x.Left}
	})
	p.table("ledger", []string{"OPERATION", "KIND", "REF", "AMOUNT", "STATUS", "REASON"}, len(v.Ledger), func(i int) []string {
		x := v.Ledger[i]
		by := x.Operation
		if by == "" {
			by = strings.TrimSpace("elsewhere " + x.External)
		}
		return []string{by, x.Kind, x.Ref, x.Amount, x.Status, x.Reason}
	})
	p.table("timeline", []string{"SEQ", "AT", "STATE", "SOURCE", "FACT", "ATTEMPT", "REF", "ABOUT"}, len(v.History), func(i int) []string {
		return append([]string{strconv.FormatInt(v.History[i].Seq, 10)}, v.History[i].cells()...)
	})
}

// cells are an entry of the history without its number.
func (x *historyView) cells() []string {
	state := x.To
	if x.From != "" && x.From != x.To {
		state = x.From + " → " + x.To
	}
	attempt := ""
	if x.Attempt > 0 {
		attempt = strconv.Itoa(x.Attempt)
	}
	var about []string
	add := func(s string) {
		if s != "" {
			about = append(about, s)
		}
	}
	if x.Actor != "" {
		add("by " + x.Actor)
	}
	if x.Rule != "" {
		add("allowed by " + x.Rule)
	}
	add(x.Code)
	add(x.Note)
	if x.Disposition == string(settle.DispositionSuperseded) || x.Disposition == string(settle.DispositionRevived) {
		add(x.Disposition)
	}
	if len(x.Alarms) > 0 {
		add("alarm: " + strings.Join(x.Alarms, ", "))
	}
	return []string{stamp(x.At), state, x.Source, x.Fact, attempt, x.Ref, strings.Join(about, "; ")}
}

func (t *termsView) text() string {
	if t == nil {
		return ""
	}
	out := slices.DeleteFunc([]string{t.Amount, t.Account}, func(s string) bool { return s == "" })
	return strings.Join(append(out, t.Other...), ", ")
}

func (v *payloadView) print(p *printer) {
	if v == nil {
		return
	}
	p.text("\npayload")
	p.field("key", v.Key)
	p.field("provider key", v.ProviderKey)
	p.field("fingerprint", v.Fingerprint)
	p.field("request", string(v.Request))
	p.field("result", string(v.Result))
	p.field("message", v.Message)
	p.field("action", v.Action)
	for _, k := range slices.Sorted(maps.Keys(v.Terms)) {
		p.field("terms "+k, v.Terms[k])
	}
	for _, k := range slices.Sorted(maps.Keys(v.Seen)) {
		p.field("seen "+k, v.Seen[k])
	}
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) text(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// field prints one line, if there is something to print.
func (p *printer) field(name, value string) {
	if value != "" {
		p.text("  %-12s %s", clean(name), clean(value))
	}
}

func (p *printer) table(name string, heads []string, n int, line func(i int) []string) {
	if n == 0 || p.err != nil {
		return
	}
	p.text("\n%s", name)
	t := newTable(p.w, "  ", heads...)
	for i := range n {
		t.line("  ", line(i)...)
	}
	if err := t.flush(); p.err == nil {
		p.err = err
	}
}
