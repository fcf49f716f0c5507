package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// TestCrashLoopNotices breaks the store, the adapter, the contract or the provider on purpose.
// The loop must say so, and name scenario, call and fault.
func TestCrashLoopNotices(t *testing.T) {
	t.Parallel()
	byName := map[string]*Scene{}
	for _, s := range allScenes(t) {
		byName[s.Name] = s
	}
	for _, c := range []struct {
		name   string
		in     string // the scenario in which it shows
		defect crashDefect
		want   string // in the message
	}{
		{"a store that does not fence", "key-forgotten", crashDefect{store: crashUnfenced}, "(I12)"},
		{"a store that applies a change again", "hook", crashDefect{store: crashRepeats}, "2 parcels are stored (I11)"},
		{"a store that runs the hook twice", "store-silence", crashDefect{store: crashHookTwice}, "2 parcels are stored (I11)"},
		{"a store that loses what it acknowledged", "execute", crashDefect{store: crashForgetful}, "is not stored (I1)"},
		{"a store that keeps another history", "execute", crashDefect{store: crashMuddled}, "(I12)"},
		{"a store whose rows never come due", "lost-reply", crashDefect{store: crashNeverDue}, "never due (I10)"},
		{"a compensation without confirmation", "compensate-unknown", crashDefect{store: crashBelieves}, "an effect that is not confirmed"},
		{"an adapter that makes a key for each attempt", "lost-request", crashDefect{adapter: crashFreshKey}, "two requests differ (I2)"},
		{"an adapter that sends what it likes", "lost-request", crashDefect{adapter: crashOtherAmount}, "two requests differ (I2)"},
		{"an adapter that calls no answer a refusal", "lost-reply", crashDefect{adapter: crashNoAnswer(settle.Declined)}, "is failed and has 1 effects"},
		{"an adapter that calls no answer a success", "lost-request", crashDefect{adapter: crashNoAnswer(settle.Applied)}, "is succeeded and has 0 effects"},
		{"an adapter that calls no answer not sent", "resolve", crashDefect{adapter: crashNoAnswer(settle.NotSent)}, "and no key guards it (I6)"},
		{"a retry before lookup", "lookup-lag", crashDefect{adapter: crashBlind, promise: func(c *settle.Contract) {
			c.Keys.ConcurrentSafe = true
		}}, "may still land (I6)"},
		{"a contract that promises keys where there are none", "lost-reply", crashDefect{provider: func(o *providertest.Options) {
			o.KeyWindow = 0
		}}, "more than one effect"},
		{"a contract with too long a window", "key-forgotten", crashDefect{promise: func(c *settle.Contract) {
			c.Keys.Window = settle.Forever
		}}, "past the key window (I6)"},
		{"a contract with too short a settle delay", "resend", crashDefect{promise: func(c *settle.Contract) {
			c.SettleDelay = time.Second
		}}, "may still land (I6)"},
		{"a store that keeps what a refused void held", "undo-captured", crashDefect{store: crashNothingFreed}, "was to be undone, and was 0 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range CrashPoints(t, byName[c.in], sceneMemory) {
				for _, problem := range crashAt(t, p, sceneMemory, &c.defect) {
					if strings.Contains(problem, c.want) {
						t.Log(strings.SplitN(problem, "\n", 2)[0])
						for _, part := range []string{p.Scene.Name, fmt.Sprintf("call %d", p.Call), p.Site, string(p.Fault)} {
							if !strings.Contains(problem, part) {
								t.Errorf("the message does not name %q", part)
							}
						}
						return
					}
				}
			}
			t.Errorf("the loop does not notice: no message with %q", c.want)
		})
	}
}

// crashStore changes some calls of a store.
type crashStore struct {
	settle.Store
	commit func(context.Context, settle.Change) ([]settle.Record, error)
	get    func(settle.Record) settle.Record
}

func (s *crashStore) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if s.commit == nil {
		return s.Store.Commit(ctx, c)
	}
	return s.commit(ctx, c)
}

func (s *crashStore) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	r, err := s.Store.Get(ctx, by)
	if err == nil && s.get != nil {
		r = s.get(r)
	}
	return r, err
}

// crashCommit makes a store that changes changes.
func crashCommit(change func(settle.Store, context.Context, *settle.Change)) func(settle.Store) settle.Store {
	return func(in settle.Store) settle.Store {
		return &crashStore{Store: in, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
			c.Writes = append([]settle.Write(nil), c.Writes...)
			change(in, ctx, &c)
			return in.Commit(ctx, c)
		}}
	}
}

func crashUnfenced(in settle.Store) settle.Store {
	return crashCommit(func(in settle.Store, ctx context.Context, c *settle.Change) {
		for i := range c.Writes {
			w := &c.Writes[i]
			if w.IfVersion == 0 {
				continue
			}
			w.IfToken = ""
			if cur, err := in.Get(ctx, settle.ByID(w.Record.ID)); err == nil {
				w.IfVersion = cur.Version
			}
		}
	})(in)
}

func crashHookTwice(in settle.Store) settle.Store {
	return crashCommit(func(_ settle.Store, _ context.Context, c *settle.Change) {
		if hook := c.Hook; hook != nil {
			c.Hook = func(ctx context.Context, tx settle.Tx) error {
				if err := hook(ctx, tx); err != nil {
					return err
				}
				return hook(ctx, tx)
			}
		}
	})(in)
}

// crashRepeats takes a change that comes again under its id for a new one.
func crashRepeats(in settle.Store) settle.Store {
	var mu sync.Mutex
	seen := map[string]bool{}
	unfenced := crashUnfenced(in)
	return &crashStore{Store: in, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
		mu.Lock()
		again := seen[c.ID]
		seen[c.ID] = true
		mu.Unlock()
		if !again {
			return in.Commit(ctx, c)
		}
		c.ID = uuid.NewString()
		return unfenced.Commit(ctx, c)
	}}
}

func crashForgetful(in settle.Store) settle.Store {
	return &crashStore{Store: in, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
		if w := c.Writes[0]; len(c.Writes) == 1 && w.IfVersion == 0 && w.Entry.Note == "attempt" {
			r := w.Record
			r.Version, r.AsOf, r.CreatedAt = 1, time.Now(), time.Now()
			r.Due = r.AsOf.Add(w.DueIn)
			return []settle.Record{r}, nil // still in a buffer when the request leaves
		}
		return in.Commit(ctx, c)
	}}
}

// crashMuddled tells of no transition: what was observed left the state as it was.
func crashMuddled(in settle.Store) settle.Store {
	return crashCommit(func(_ settle.Store, _ context.Context, c *settle.Change) {
		for i := range c.Writes {
			c.Writes[i].Entry.From = c.Writes[i].Entry.To
		}
	})(in)
}

// crashNothingFreed keeps reserved what a compensation was to undo that did nothing.
func crashNothingFreed(in settle.Store) settle.Store {
	return crashCommit(func(_ settle.Store, _ context.Context, c *settle.Change) {
		for i := range c.Writes {
			w := &c.Writes[i]
			w.Record = w.Record.Clone()
			for k := range w.Record.Ledger {
				if p := &w.Record.Ledger[k]; p.Status == settle.PostingFreed {
					p.Status = settle.PostingOpen
				}
			}
		}
	})(in)
}

func crashNeverDue(in settle.Store) settle.Store {
	return crashCommit(func(_ settle.Store, _ context.Context, c *settle.Change) {
		for i := range c.Writes {
			if c.Writes[i].Record.Token == "" {
				c.Writes[i].DueIn = settle.Never
			}
		}
	})(in)
}

// crashBelieves reads every charge of which a request left as confirmed, and stores it as it is.
func crashBelieves(in settle.Store) settle.Store {
	return &crashStore{
		Store: in,
		get: func(r settle.Record) settle.Record {
			if r.Kind == "charge" && len(r.Attempts) > 0 && len(r.References) == 0 {
				r.References = []settle.Reference{{Ref: "ch_1", Rank: settle.RankSucceeded, Terms: r.Terms}}
			}
			return r
		},
		commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
			c.Writes = append([]settle.Write(nil), c.Writes...)
			for i := range c.Writes {
				w := &c.Writes[i]
				if cur, err := in.Get(ctx, settle.ByID(w.Record.ID)); err == nil && w.Entry.Note == "ledger" {
					w.Record.References, w.Record.State = cur.References, cur.State
				}
			}
			return in.Commit(ctx, c)
		},
	}
}

type (
	crashCharge = settle.Adapter[providertest.Payment, providertest.Receipt]
	crashCall   = settle.Call[providertest.Payment]
	crashAnswer = settle.Observation[providertest.Receipt]
	crashHonest = func(context.Context, *crashCall) (crashAnswer, error)
)

// crashSubmit changes how a charge is sent.
func crashSubmit(send func(ctx context.Context, c *crashCall, as crashHonest) (crashAnswer, error)) func(*crashCharge, providertest.API) {
	return func(a *crashCharge, _ providertest.API) {
		honest := a.SubmitFunc
		a.SubmitFunc = func(ctx context.Context, c *crashCall) (crashAnswer, error) { return send(ctx, c, honest) }
	}
}

func crashFreshKey(a *crashCharge, _ providertest.API) {
	crashSubmit(func(ctx context.Context, c *crashCall, as crashHonest) (crashAnswer, error) {
		return as(ctx, settle.NewCall(fmt.Sprintf("%s-%d", c.Key(), c.Attempt), *c))
	})(a, nil)
}

func crashOtherAmount(a *crashCharge, _ providertest.API) {
	crashSubmit(func(ctx context.Context, c *crashCall, as crashHonest) (crashAnswer, error) {
		other := settle.NewCall(c.Key(), *c)
		other.Request.Amount += int64(c.Attempt)
		return as(ctx, other)
	})(a, nil)
}

// crashNoAnswer makes a fact of an error.
func crashNoAnswer(fact settle.Fact) func(*crashCharge, providertest.API) {
	return crashSubmit(func(ctx context.Context, c *crashCall, as crashHonest) (crashAnswer, error) {
		o, err := as(ctx, c)
		if err != nil {
			return crashAnswer{Fact: fact, Code: "timeout", Ref: "", Terms: c.Terms}, nil
		}
		return o, nil
	})
}

// crashBlind finds nothing, whatever it is asked.
func crashBlind(a *crashCharge, _ providertest.API) {
	if a.LookupFunc != nil {
		a.LookupFunc = func(context.Context, *crashCall) (crashAnswer, error) { return crashAnswer{Fact: settle.NotFound}, nil }
	}
}
