package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunFeed plays what the feed of transitions promises.
func RunFeed(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"IC-60 messages that failed too often stand in nobody's way", feedDeadLetters},
		{"IC-61 a crash between publishing and marking", feedCrash},
		{"a message that a person takes out", feedSkip},
		{"an outage uses up nobody's tries", feedOutage},
		{"a claim that is lost in the middle", feedClaimLost},
		{"a process that stands still before it publishes", feedStalled},
		{"a transition while another is delivered", feedMoving},
		{"what it costs", feedCost},
		{"processes that do not publish", feedElsewhere},
		{"operations from before there was a feed", feedFrom},
		{"the place of an operation is lost", feedPlaceLost},
		{"retention waits for readers", feedRetention},
		{"registered in a transaction", feedTx},
	})
}

// t32: an operation whose third transition is there before the second was delivered, because the second is poison; or
// because the broker was away.
func t32(t *testing.T, open Open) {
	three := func(l *Lab, b *broker) (*Process, string, string) {
		p := l.publishing(b)
		l.Provider.Script(providertest.Processing())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrProcessing)
		l.Elapse(2 * l.poll()) // its first messages are there, or were tried
		l.noErr(l.Provider.Finish("ch_1"))
		l.Want(l.Rest(out.ID, time.Hour), settle.StateSucceeded)
		other, err := p.Charge.Execute(l.Ctx, numbered(2))
		l.noErr(err)
		l.Elapse(3 * time.Minute)
		l.wantFed(b, other.ID) // it does not wait
		return p, out.ID, other.ID
	}
	t.Run("poison", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			b := newBroker(t)
			poison := ""
			b.refuses(func(_ context.Context, m settle.Message) error {
				if m.To == settle.StateProcessing {
					poison = m.ID
					return fmt.Errorf("no such subject: %w", settle.ErrPoison)
				}
				return nil
			})
			p, id, _ := three(l, b)
			place := l.Until("feed_"+id, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateReview })
			if place.Review.Reason != settle.ReasonPoison || place.Review.Deadline.IsZero() || !contains(p.Alarms(), settle.AlarmReview) {
				t.Fatalf("set aside with %+v, alarms %v", place.Review, p.Alarms())
			}
			if n, _ := b.tried(poison); n != 10 {
				t.Fatalf("the poison was tried %d times, want 10", n)
			}
			if got := b.of(id); len(got) != 1 || got[0].To != settle.StateSubmitting {
				t.Fatalf("delivered beside the poison: %+v", got)
			}
			dead := l.Matching(settle.Query{Kind: settle.FeedKind, States: []settle.State{settle.StateReview}})
			if len(dead) != 1 || dead[0].Subject != id {
				t.Fatalf("the dead letters are %v", dead)
			}
			_, err := p.Engine.Assign(l.Ctx, place.ID, settle.Assignment{Actor: "ana", Reason: "on call", Owner: "payments", Within: 5 * time.Minute})
			l.noErr(err)
			l.Elapse(7 * time.Minute)
			if !contains(p.Alarms(), settle.AlarmOverdue) {
				t.Fatal("nobody decided, and nobody was told (I10)")
			}
			l.noErr(p.Engine.Redrive(l.Ctx, id, mended)) // it is still poison
			l.Until("feed_"+id, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateReview })
			if n, _ := b.tried(poison); n != 20 || len(b.of(id)) != 1 {
				t.Fatalf("tried %d times in all; delivered %+v", n, b.of(id))
			}
			l.Elapse(30 * time.Minute)
			b.refuses(nil)
			l.Elapse(time.Hour)
			if len(b.of(id)) != 1 {
				t.Fatal("what was set aside went out by itself")
			}
			l.noErr(p.Engine.Redrive(l.Ctx, place.ID, mended)) // by either id
			l.Elapse(2 * l.poll())
			l.wantFed(b, id)
			l.wantErr(p.Engine.Redrive(l.Ctx, id, mended), settle.ErrSettled)
		})
	})
	t.Run("an outage", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			b := newBroker(t)
			failed := 0
			b.refuses(func(_ context.Context, m settle.Message) error {
				if m.To == settle.StateProcessing && failed < 3 {
					failed++
					return errors.New("connection refused")
				}
				return nil
			})
			_, id, _ := three(l, b)
			l.Elapse(5 * time.Minute)
			if failed != 3 {
				t.Fatalf("it failed %d times", failed)
			}
			l.wantFed(b, id)
		})
	})
}

// feedDeadLetters: as many rows as one claim takes are older, and have failed too often.
func feedDeadLetters(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		const poison, fresh = 10, 5
		b := newBroker(t)
		var ids []string
		b.refuses(func(_ context.Context, m settle.Message) error {
			if l.Get(m.Operation).Purpose == "poison" {
				return settle.ErrPoison
			}
			return nil
		})
		p := l.Start(&Setup{Options: settle.Options{Publisher: b, Concurrency: poison, PollInterval: l.poll()}}).Work()
		for i := range poison {
			op := numbered(i)
			op.Purpose = "poison"
			out, err := p.Charge.Execute(l.Ctx, op)
			l.noErr(err)
			ids = append(ids, out.ID)
		}
		for _, id := range ids {
			l.Until("feed_"+id, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateReview })
		}
		l.Elapse(time.Hour)
		_, tries := b.tried("")
		due, err := l.Store.Claim(l.Ctx, settle.Claim{Kinds: []string{settle.FeedKind}, Token: "t", Lease: time.Second, Limit: 100})
		l.noErr(err)
		if len(due) != 0 {
			t.Fatalf("%d dead letters are due", len(due))
		}
		for i := range fresh {
			out, err := p.Charge.Execute(l.Ctx, numbered(poison+i))
			l.noErr(err)
			ids = append(ids, out.ID)
		}
		l.Elapse(2 * l.poll()) // the next poll
		for _, id := range ids[poison:] {
			l.wantFed(b, id)
		}
		if _, n := b.tried(""); n-tries != len(b.got) {
			t.Fatalf("%d tries for %d messages", n-tries, len(b.got))
		}
		b.refuses(nil)
		for _, id := range ids[:poison] {
			l.noErr(p.Engine.Redrive(l.Ctx, id, mended))
		}
		l.Elapse(2 * l.poll())
		for _, id := range ids {
			l.wantFed(b, id)
		}
	})
}

// feedSkip: those who wait for it were told in another way.
func feedSkip(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		b.refuses(func(_ context.Context, m settle.Message) error {
			if m.To == settle.StateSubmitting {
				panic("index out of range") // as good as poison
			}
			return nil
		})
		p := l.publishing(b)
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		d := settle.Decision{Actor: "ana", Reason: "too large", Evidence: "mail of 4 May", Fact: settle.Applied}
		_, err = p.Engine.Resolve(l.Ctx, "feed_"+out.ID, d)
		l.wantErr(err, settle.ErrSettled)
		l.Until("feed_"+out.ID, 3*time.Hour, func(r settle.Record) bool { return r.State == settle.StateReview })
		wrong := d
		wrong.Fact = settle.Declined
		_, err = p.Engine.Resolve(l.Ctx, "feed_"+out.ID, wrong)
		l.wantErr(err, settle.ErrInvalid)
		_, err = p.Engine.Resolve(l.Ctx, "feed_"+out.ID, d)
		l.noErr(err)
		l.Elapse(2 * l.poll())
		got := b.of(out.ID)
		if len(got) != 1 || got[0].To != settle.StateSucceeded || got[0].From != settle.StateSubmitting || got[0].Previous != 1 {
			t.Fatalf("behind the message that was taken out: %+v", got)
		}
		h := l.History(out.ID)
		if x := h[len(h)-2]; x.Actor != "ana" || x.Source != settle.SourcePerson {
			t.Fatalf("the history says %+v", x)
		}
		l.Want(l.place(out.ID), settle.StateSucceeded)
	})
}

// feedCost: of an operation that settles at once.
func feedCost(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		writes := func(p *Process) (n []int) {
			for _, c := range p.Applied() {
				n = append(n, len(c.Writes))
			}
			return n
		}
		bare := l.Start(nil)
		out, err := bare.Charge.Execute(l.Ctx, numbered(1))
		l.noErr(err)
		if got := writes(bare); !slices.Equal(got, []int{1, 1}) || out.Feed != (settle.Feed{}) {
			t.Fatalf("without a publisher: commits of %v records, %+v", got, out.Feed)
		}
		web := l.Start(&Setup{Options: settle.Options{Publisher: settle.PublishedElsewhere{}}})
		out, err = web.Charge.Execute(l.Ctx, numbered(2))
		l.noErr(err)
		if got := writes(web); !slices.Equal(got, []int{2, 1}) {
			t.Fatalf("with one: commits of %v records", got)
		}
		b := newBroker(t)
		p := l.publishing(b)
		l.Elapse(2 * l.poll())
		l.wantFed(b, out.ID)
		if got := writes(p); !slices.Equal(got, []int{2}) || len(b.of(out.ID)) != 2 {
			t.Fatalf("delivering: commits of %v records", got)
		}
	})
}

func feedElsewhere(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		web := l.Start(&Setup{Options: settle.Options{Publisher: settle.PublishedElsewhere{}, PollInterval: l.poll()}}).Work()
		out, err := web.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		l.Elapse(time.Hour)
		// One without any leaves the row where it is, and keeps what it changes in the feed.
		bare := l.Start(&Setup{Options: settle.Options{PollInterval: l.poll()}}).Work()
		l.Elapse(time.Hour)
		if r := l.place(out.ID); r.Version != 1 || !l.Get(out.ID).Feed.Pending() {
			t.Fatalf("a process that publishes nothing has claimed it: version %d", r.Version)
		}
		overdue := 0
		for _, n := range bare.Notices() {
			if n.Event == settle.EventOverdue && n.Kind == settle.FeedKind {
				overdue++
			}
		}
		if overdue == 0 {
			t.Fatal("nobody publishes, and nobody was told (I10)")
		}
		_, err = bare.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
		l.noErr(err)
		l.publishing(b)
		l.Elapse(time.Minute)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		l.wantFed(b, out.ID)
		if refund := l.All("refund")[0]; len(b.of(refund.ID)) != 0 || refund.Feed != (settle.Feed{}) {
			t.Fatal("an operation that was made without a feed is in it")
		}
	})
}

func feedFrom(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		bare := l.Start(nil)
		old, err := bare.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		l.Provider.Script(providertest.Processing())
		open, err := bare.Charge.Execute(l.Ctx, numbered(2))
		l.wantErr(err, settle.ErrProcessing)
		for _, r := range append(l.All("charge"), l.Matching(settle.Query{Kind: settle.FeedKind})...) {
			if r.Feed != (settle.Feed{}) || r.Kind == settle.FeedKind {
				t.Fatalf("%v is in a feed that there is not", r)
			}
		}
		l.publishing(b)
		l.noErr(l.Provider.Finish("ch_2"))
		l.Want(l.Rest(open.ID, time.Hour), settle.StateSucceeded)
		l.Elapse(time.Minute)
		got := b.of(open.ID)
		if len(got) != 1 || got[0].From != settle.StateProcessing || got[0].To != settle.StateSucceeded || got[0].Previous != 0 {
			t.Fatalf("from its next transition on: %+v", got)
		}
		if len(b.of(old.ID)) != 0 {
			t.Fatalf("what was settled before is in the feed: %+v", b.of(old.ID))
		}
	})
}

// feedPlaceLost: a transition never fails because of the feed, whatever is stored of its place.
func feedPlaceLost(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		p := l.publishing(b)
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		l.Elapse(time.Minute)
		l.wantFed(b, out.ID)
		for _, kind := range []string{"place", "record"} {
			r, err := l.Store.Get(l.Ctx, settle.ByID(out.ID))
			l.noErr(err)
			if kind == "place" {
				r, err = l.Store.Get(l.Ctx, settle.ByID("feed_"+out.ID))
				l.noErr(err)
			} else {
				r.Feed.Row = 1 // as it was in a backup
			}
			_, err = l.Store.Commit(l.Ctx, settle.Change{ID: fmt.Sprint("change-", kind), Writes: []settle.Write{{
				Record: r, IfVersion: r.Version, DueIn: settle.Keep,
				Entry: settle.Entry{From: r.State, To: r.State, Source: settle.SourceWorker, Disposition: settle.DispositionControl},
			}}})
			l.noErr(err)
		}
		_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
		l.noErr(err)
		l.Elapse(time.Minute)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		l.wantFed(b, out.ID)
	})
}

func feedRetention(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		b.refuses(func(context.Context, settle.Message) error { return errors.New("away") })
		p := l.Start(&Setup{Options: settle.Options{Publisher: b, Retention: time.Hour, PollInterval: l.poll()}}).Work()
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		l.Elapse(5 * time.Hour)
		if r := l.Get(out.ID); r.Request == nil || !r.PrunedAt.IsZero() {
			t.Fatal("pruned before its readers know of it")
		}
		b.refuses(func(_ context.Context, m settle.Message) error {
			if r := l.Get(m.Operation); r.Result == nil {
				t.Error("the reader of a message finds no result")
			}
			return nil
		})
		l.Elapse(5 * time.Hour)
		l.wantFed(b, out.ID)
		if r := l.Get(out.ID); r.Request != nil {
			t.Fatal("not pruned after that")
		}
	})
}

// feedTx: what is registered in the transaction of a hook is in the feed with it, or not at all.
func feedTx(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		s := l.shipping("", 0, Fault{})
		e, err := settle.Open(s.p.f.store(l), &settle.Options{Publisher: settle.PublishedElsewhere{}})
		l.noErr(err)
		s.parcel, err = settle.New(e, "parcel", providertest.ChargeAdapter(s.p.API, l.Promise), nil)
		l.noErr(err)
		s.end = func() error { return errors.New("violates foreign key constraint") }
		_, err = s.p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrConsequence)
		if got := l.Matching(settle.Query{Kind: settle.FeedKind}); len(got) != 0 {
			t.Fatalf("rolled back, and in the feed: %v", got)
		}
		s.end = nil
		s.p.Work()
		l.Elapse(5 * time.Minute)
		s.want(1)
		l.publishing(b)
		l.Elapse(time.Minute)
		parcel := l.All("parcel")[0]
		l.wantFed(b, parcel.ID)
		if got := b.of(parcel.ID); len(got) != 1 || got[0].To != settle.StateCreated {
			t.Fatalf("the feed of a registration: %+v", got)
		}
	})
}
