package settle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// modelKind is what the engine needs of an executor, for one process and row.
type modelKind struct {
	m         *model
	proc, row int
}

var _ kind = (*modelKind)(nil)

func (k *modelKind) name() string {
	if k.row == charge {
		return "charge"
	}
	return "refund"
}

func (k *modelKind) contract() Contract { return k.m.promise() }

func (k *modelKind) account() string {
	f := k.m.promise().Account
	if k.m.moved && k.proc == 1 && k.m.seed != accountIgnored {
		f.Region = "elsewhere"
	}
	return f.String()
}

func (k *modelKind) undoes() string {
	if k.row == charge {
		return ""
	}
	return "charge"
}

func (k *modelKind) escalateAfter() time.Duration                   { return escalateIn * tick }
func (k *modelKind) covers(Fingerprint, []byte) (bool, error)       { return true, nil }
func (k *modelKind) deriveTerms(r *Record, _ Effect) (Terms, error) { return r.Terms, nil }
func (k *modelKind) hasHook() bool                                  { return false }
func (k *modelKind) hook(*Record) func(context.Context, Tx) error   { return nil }
func (k *modelKind) limits() (int, Rate)                            { return 0, Rate{} }
func (k *modelKind) mute() bool                                     { return false }

func (k *modelKind) event(context.Context, Event) (reply, error) { return reply{}, nil }

// submit and lookup serve Engine.pass in the conformance test; elsewhere the model makes the calls.
func (k *modelKind) submit(_ context.Context, _ *Record, _ Effect, n int, _ any, used *atomic.Bool) (reply, error) {
	used.Store(true)
	k.m.w.reqs = append(k.m.w.reqs, request{row: k.row, attempt: n, sent: k.m.w.now, proc: k.proc})
	f := k.m.plays(k.proc)
	k.m.w.waiting(k.proc).proc = -1
	if f == Unclear {
		return reply{}, errors.New("no answer")
	}
	return reply{ev: k.m.replied(f, k.row)}, nil
}

func (k *modelKind) lookup(context.Context, *Record, Effect) (reply, error) {
	ev, noAnswer := k.m.seen(k.row, k.m.script.view)
	if noAnswer {
		return reply{}, errors.New("no answer")
	}
	return reply{ev: ev}, nil
}

// modelStore is the Store of the model's world: versions, tokens, leases and due, in ticks.
type modelStore struct{ m *model }

// LocalReads spares contexts with deadlines.
func (s modelStore) LocalReads() bool { return true }

func (s modelStore) slot(id string) int {
	for i, r := range s.m.w.rows {
		if r != nil && r.ID == id {
			return i
		}
	}
	return -1
}

func (s modelStore) read(i int) Record {
	out := s.m.w.rows[i].fork()
	out.AsOf = s.m.instant()
	return out
}

// Get implements Store.
func (s modelStore) Get(_ context.Context, by Index) (Record, error) {
	i := -1
	switch by.Name {
	case IndexID:
		i = s.slot(by.Parts[0])
	case IndexIntent:
		for n, r := range s.m.w.rows {
			if r != nil && ByIntent(r.Scope, r.Kind, r.Subject, r.Purpose) == by {
				i = n
			}
		}
	case IndexKey, IndexHold, IndexRef:
		panic("the model has no such name")
	}
	if i < 0 {
		return Record{}, ErrNotFound
	}
	return s.read(i), nil
}

// Commit implements Store.
func (s modelStore) Commit(_ context.Context, c Change) ([]Record, error) {
	w := s.m.w
	isAttempt := c.Writes[len(c.Writes)-1].Entry.Note == "attempt" || c.Writes[0].Entry.Note == "attempt"
	if isAttempt {
		w.now += s.m.script.beforeCommit
	}
	now := s.m.instant()
	at := make([]int, len(c.Writes))
	for n, x := range c.Writes {
		i := s.slot(x.Record.ID)
		if x.IfVersion == 0 {
			for i = 0; w.rows[i] != nil || (i == charge) != (x.Record.Kind == "charge"); i++ {
			}
			at[n] = i
			continue
		}
		cur := s.read(i)
		if cur.Version != x.IfVersion || x.IfToken != "" && (cur.Token != x.IfToken || !cur.Claimed()) {
			return nil, &ConflictError{Existing: cur}
		}
		s.m.checkWrite(&cur, &x)
		at[n] = i
	}
	var out []Record
	for n, x := range c.Writes {
		i := at[n]
		r := x.Record
		r.Version, r.UpdatedAt, r.AsOf = x.IfVersion+1, now, now
		if x.IfVersion == 0 {
			r.CreatedAt, r.Due = now, time.Time{}
		} else {
			r.Due = w.rows[i].Due
			if s.m.seed == unknownCompensated {
				r.Undoes = w.rows[i].Undoes
			}
		}
		switch d := x.DueIn; {
		case d == Never, d > 0 && s.m.seed == dueForgotten && r.Token == "":
			r.Due = time.Time{}
		case d > 0: // jitter is less than a tick
			r.Due = now.Add(max(tick, d.Truncate(tick)))
		case d == 0:
			r.Due = now
		}
		fresh(&r)
		w.rows[i] = &r
		out = append(out, r.fork())
	}
	if isAttempt {
		w.now += s.m.script.afterCommit
	}
	return out, nil
}

// Claim implements Store; the moves of the model claim one row at a time, see claimRow.
func (s modelStore) Claim(context.Context, Claim) ([]Record, error) { return nil, nil }

// claimRow is Store.Claim of one row that is due.
func (s modelStore) claimRow(i int, token string) Record {
	r := s.m.w.rows[i].fork()
	r.Token, r.Due, r.Version = token, s.m.instant().Add(s.m.e.opts.Lease), r.Version+1
	s.m.w.rows[i] = &r
	return s.read(i)
}

// Renew implements Store.
func (s modelStore) Renew(_ context.Context, held []Held, lease time.Duration) ([]error, error) {
	out := make([]error, len(held))
	for n, h := range held {
		i := s.slot(h.ID)
		r := s.read(i)
		if r.Token != h.Token || !r.Claimed() {
			out[n] = ErrClaimLost
			continue
		}
		r.Due = s.m.instant().Add(lease)
		s.m.w.rows[i] = &r
	}
	return out, nil
}

// List implements Store.
func (s modelStore) List(context.Context, Query) ([]Record, error) { return nil, nil }

// History implements Store.
func (s modelStore) History(context.Context, string, int64, int) ([]Entry, error) { return nil, nil }
