package scenario

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// feedCrash: the process dies at each of its calls, before and after it was made; another one goes on.
func feedCrash(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		x    Fault
	}{
		{"before", Fault{Kill: true}},
		{"after", Fault{Kill: true, After: errGone}},
	} {
		eachCall(t, "killed "+c.name, open, func(_ *testing.T, l *Lab, n int) bool {
			b := newBroker(l.T)
			p := l.publishing(b)
			l.Elapse(2 * time.Minute) // its first polls are over
			resting := false
			kill := Nth("", n, c.x)
			p.Faults(func(call Call) Fault {
				x := kill(call)
				if x.Kill {
					resting = l.fed()
				}
				return x
			})
			_, err := p.Charge.Execute(l.Ctx, Order())
			if err == nil {
				l.Elapse(3 * l.poll())
			}
			p.Kill()
			l.publishing(b)
			l.Elapse(10 * time.Minute) // longer than leases and looks again
			for _, r := range l.All("charge") {
				l.Want(r, settle.StateSucceeded)
				l.wantFed(b, r.ID)
			}
			return resting || p.Hits() == 0
		})
	}
	t.Run("after each message", func(t *testing.T) {
		Play(t, open, nil, func(t *testing.T, l *Lab) {
			b := newBroker(t)
			l.Provider.Script(providertest.Processing())
			web := l.Start(&Setup{Options: settle.Options{Publisher: settle.PublishedElsewhere{}}})
			out, err := web.Charge.Execute(l.Ctx, Order())
			l.wantErr(err, settle.ErrProcessing)
			l.noErr(l.Provider.Finish("ch_1"))
			web.Work()
			l.Want(l.Rest(out.ID, time.Hour), settle.StateSucceeded)
			web.Stop()
			for died := 0; ; died++ {
				var p *Process
				n := 0
				b.refuses(func(context.Context, settle.Message) error {
					if n++; n > died { // then it has sent that many, and marked none
						p.Kill()
						return errGone
					}
					return nil
				})
				p = l.Start(&Setup{Options: settle.Options{Publisher: b, PollInterval: l.poll()}})
				p.Work()
				l.Elapse(2 * time.Minute) // longer than a lease
				if n <= died {
					break
				}
			}
			got := b.applied(out.ID)
			if len(got) != 3 || len(b.of(out.ID)) != 0+1+2+3 {
				t.Fatalf("delivered: %+v", b.of(out.ID))
			}
			l.wantFed(b, out.ID)
		})
	})
}

// fed reports whether there is a charge and all of it is delivered. It may be called from within a call of a process.
func (l *Lab) fed() bool {
	recs, err := l.Store.List(context.Background(), settle.Query{Kind: "charge"})
	return err == nil && len(recs) == 1 && recs[0].State.Settled() && !recs[0].Feed.Pending()
}

func feedOutage(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		const operations = 30
		b := newBroker(t)
		b.refuses(func(context.Context, settle.Message) error { return errors.New("no servers available") })
		p := l.publishing(b)
		var ids []string
		for i := range operations {
			out, err := p.Charge.Execute(l.Ctx, numbered(i))
			l.noErr(err)
			ids = append(ids, out.ID)
		}
		l.Elapse(3 * time.Hour)
		var versions int64
		for _, id := range ids {
			r := l.place(id)
			versions += r.Version
			if r.Tries != 0 || r.State != settle.StateCreated {
				t.Fatalf("after an outage: %d tries, %s; %s", r.Tries, r.State, l.story(r.ID))
			}
			if op := l.Get(id); op.Version > 3 {
				t.Fatalf("the operation was written %d times", op.Version)
			}
		}
		// One row a minute is tried, whatever the number of those that wait.
		if _, n := b.tried(""); n > 3*60+60 || versions > 2*(3*60+60)+operations {
			t.Fatalf("an outage of three hours cost %d calls and %d versions", n, versions)
		}
		b.refuses(nil)
		l.Elapse(2*time.Minute + 3*l.poll())
		for _, id := range ids {
			l.wantFed(b, id)
		}
	})
}

// feedClaimLost: a process stands still inside Publish until another one has its row; what it does after that only repeats.
func feedClaimLost(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		gate := l.Gate()
		inside := make(chan struct{})
		slow := &broker{t: t, calls: map[string]int{}}
		var once sync.Once
		slow.refuses(func(_ context.Context, m settle.Message) error {
			if m.To != settle.StateSubmitting {
				once.Do(func() { close(inside) })
				<-gate.C
			}
			return b.Publish(context.Background(), m)
		})
		p := l.publishing(slow)
		p.Faults(func(c Call) Fault {
			if c.Op == OpRenew {
				return Fault{Before: errBroken}
			}
			return Fault{}
		})
		l.Provider.Script(providertest.Processing())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrProcessing)
		<-inside
		p.Faults(func(Call) Fault { return Fault{Before: errBroken} })
		l.publishing(b)
		l.noErr(l.Provider.Finish("ch_1"))
		l.Want(l.Rest(out.ID, time.Hour), settle.StateSucceeded)
		l.Elapse(10 * time.Minute)
		l.wantFed(b, out.ID)
		p.Faults(nil)
		gate.Open()
		l.Elapse(10 * time.Minute)
		l.wantFed(b, out.ID) // the late one is a repetition
		if got := b.of(out.ID); len(got) != len(b.applied(out.ID))+2 {
			t.Fatalf("the process that stood still published nothing late: %+v", got)
		}
	})
}

// feedStalled: a process stands still before it publishes, and its lease ends meanwhile: it publishes nothing (I5).
func feedStalled(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b, late := newBroker(t), newBroker(t)
		web := l.Start(&Setup{Options: settle.Options{Publisher: settle.PublishedElsewhere{}}})
		out, err := web.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		p := l.publishing(late)
		p.Faults(func(c Call) Fault {
			switch c.Op {
			case OpRenew:
				return Fault{Before: errBroken}
			case OpHistory:
				return Fault{DelayReply: 5 * time.Minute}
			}
			return Fault{}
		})
		l.Elapse(15 * time.Second)
		p.Faults(func(Call) Fault { return Fault{Before: errBroken} }) // it claims nothing more
		l.publishing(b)
		l.Elapse(10 * time.Minute)
		l.wantFed(b, out.ID)
		if got := late.of(out.ID); len(got) != 0 {
			t.Fatalf("published without a claim: %+v", got)
		}
	})
}

// feedMoving: the operation moves on between Publish and the commit that notes it.
func feedMoving(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		b := newBroker(t)
		web := l.Start(&Setup{Options: settle.Options{Publisher: settle.PublishedElsewhere{}}})
		out, err := web.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		b.refuses(func(_ context.Context, m settle.Message) error {
			if m.Operation != out.ID || m.To != settle.StateSucceeded {
				return nil
			}
			_, err := web.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID}, "returned", Refund{})
			return err
		})
		l.publishing(b)
		l.Elapse(time.Minute)
		l.Want(l.Get(out.ID), settle.StateCompensated)
		l.wantFed(b, out.ID)
		l.wantFed(b, l.All("refund")[0].ID)
		if got := b.of(out.ID); len(got) != len(b.applied(out.ID)) {
			t.Fatalf("repeated, although nobody died: %+v", got)
		}
	})
}
