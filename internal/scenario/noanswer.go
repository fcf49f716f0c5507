package scenario

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// I4 holds: whatever is no explicit evidence leaves the attempt open, the operation unknown and
// the process alive.
func I4(t *testing.T, open Open) {
	submit := func(f func(ctx context.Context) (settle.Observation[Receipt], error)) func(*settle.Adapter[Payment, Receipt]) {
		return func(a *settle.Adapter[Payment, Receipt]) {
			inner, first := a.SubmitFunc, true
			a.SubmitFunc = func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
				if !first {
					return inner(ctx, c)
				}
				first = false
				return f(ctx)
			}
		}
	}
	none := settle.Observation[Receipt]{}
	for _, c := range []struct {
		name    string
		step    *providertest.Step
		adapter func(*settle.Adapter[Payment, Receipt])
		effects int
	}{
		{name: "timeout", step: ptr(providertest.HangBefore(nil))},
		{name: "timeout after the effect", step: ptr(providertest.HangAfter(nil)), effects: 1},
		{name: "reset", step: ptr(providertest.DropReply()), effects: 1},
		{name: "lost", step: ptr(providertest.DropRequest())},
		{name: "500", step: ptr(providertest.Status(500, "internal"))},
		{name: "503", step: ptr(providertest.Status(503, "unavailable"))},
		{name: "500 after the effect", step: ptr(providertest.StatusAfter(500, "internal")), effects: 1},
		{name: "unreadable", step: ptr(providertest.Garbled()), effects: 1},
		{name: "409 in flight", step: ptr(providertest.InFlight())},
		{name: "key reused", step: ptr(providertest.KeyReused())},
		{name: "403", step: ptr(providertest.Status(403, "forbidden"))},
		{name: "404", step: ptr(providertest.Status(404, "not_found"))},
		{name: "error", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) { return none, errors.New("eof") })},
		{name: "error with a fact", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			return settle.Observation[Receipt]{Fact: settle.Declined}, errors.New("declined")
		})},
		{name: "a sentinel of this library", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			return none, settle.ErrFailed
		})},
		{name: "canceled", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) { return none, context.Canceled })},
		{name: "deadline", adapter: submit(func(ctx context.Context) (settle.Observation[Receipt], error) {
			<-ctx.Done()
			return none, ctx.Err()
		})},
		{name: "zero observation", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) { return none, nil })},
		{name: "unknown fact", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			return settle.Observation[Receipt]{Fact: "failed"}, nil
		})},
		{name: "not found from a submit", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			return settle.Observation[Receipt]{Fact: settle.NotFound}, nil
		})},
		{name: "panic", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) { panic("boom") })},
		{name: "runtime panic", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			return settle.Observation[Receipt]{Ref: strings.Fields("")[0]}, nil
		})},
		{name: "Goexit", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			runtime.Goexit()
			return none, nil
		})},
		{name: "ignores its context", adapter: submit(func(context.Context) (settle.Observation[Receipt], error) {
			time.Sleep(30 * time.Minute) // the bubble's clock
			return none, errors.New("at last")
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			Play(t, open, &providertest.Options{}, func(t *testing.T, l *Lab) { // no keys, no lookup: nothing but the reply
				if c.step != nil {
					l.Provider.Script(*c.step)
				}
				p := l.Start(&Setup{Promise: l.contract(noLookup), Adapter: c.adapter})
				out, err := p.Charge.Execute(l.Ctx, Order())
				if !errors.Is(err, settle.ErrUnknown) || errors.Is(err, settle.ErrFailed) || out.Next != settle.NextWait {
					t.Fatalf("error %v, next %s; want unknown, wait (I4)", err, out.Next)
				}
				l.Want(l.Get(out.ID), settle.StateUnknown)
				if a := l.Get(out.ID).Attempts; len(a) != 1 || a[0].Fate != settle.FateOpen || a[0].End.IsZero() {
					t.Fatalf("attempts %+v, want one open one that its holder ended in time (I4)", a)
				}
				l.Effects(out.ID, c.effects)
				p.Work()
				l.Want(l.Rest(out.ID, time.Hour), settle.StateReview) // never failed, and never sent again
				next := Order()
				next.Subject = "order-18"
				_, err = p.Charge.Execute(l.Ctx, next)
				l.noErr(err) // alive
			})
		})
	}
	t.Run("the caller's context ends", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			release := l.Gate()
			l.Provider.Script(providertest.HangBefore(release.C))
			p := l.Start(nil)
			ctx, cancel := context.WithTimeout(l.Ctx, 3*time.Second)
			defer cancel()
			out, err := p.Charge.Execute(ctx, Order())
			l.wantErr(err, settle.ErrPending)
			l.wantErr(err, context.DeadlineExceeded)
			if out.ID == "" {
				t.Fatal("the outcome is empty")
			}
			release.Open()
			l.Elapse(time.Second)
			l.Want(l.Get(out.ID), settle.StateSucceeded) // the request went on without its caller
			l.Requests(1)
		})
	})
}
