package providertest

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

type keyID struct{ account, key, params string }

// binding is a key and the answer that belongs to it.
type binding struct {
	Account  string    `json:"account,omitempty"`
	Key      string    `json:"key"`
	Params   string    `json:"params"`
	First    time.Time `json:"first"` // the window runs from here
	ObjectID string    `json:"object_id,omitempty"`
	Fault    *Fault    `json:"fault,omitempty"`   // the first answer, if it was none
	Snapshot Object    `json:"snapshot,omitzero"` // the first answer
}

// flight is a request under execution. Its id is empty when it has no key that
// counts.
type flight struct {
	id      keyID
	params  string
	first   time.Time
	changed chan struct{} // closed when it ends or is abandoned
	left    *delayed      // set once its caller has given up
}

// answer is an object or a fault.
type answer struct {
	object Object
	fault  *Fault
}

func (r Request) params() string {
	b, err := json.Marshal(struct {
		Kind, Parent, Reference, Account, Currency string
		Amount                                     int64
		Extra                                      map[string]string
	}{r.Kind, r.Parent, r.Reference, r.Account, r.Currency, r.Amount, r.Extra})
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return string(b)
}

func (p *Provider) keyID(req Request) keyID {
	id := keyID{account: req.Account, key: req.Key}
	if p.o.Drift == DriftNew {
		id.params = req.params()
	}
	return id
}

// ForgetKeys makes the provider forget all keys, those in flight excepted, as
// after the loss of its key store.
func (p *Provider) ForgetKeys() {
	p.lock()
	defer p.unlock()
	clear(p.keys)
}

// admit decides what a request that has reached the provider meets under its
// key: leave to run, an answer, or another flight to wait for.
func (p *Provider) admit(req Request, now time.Time) (run *flight, ans *answer, busy *flight) {
	run = &flight{params: req.params(), first: now, changed: make(chan struct{})}
	if req.Key == "" || p.o.KeyWindow == 0 {
		return run, nil, nil
	}
	if p.o.KeyMaxLen > 0 && len(req.Key) > p.o.KeyMaxLen {
		a := refuse(400, CodeInvalid)
		return nil, &a, nil
	}
	id := p.keyID(req)
	b := p.keys[id]
	if b != nil && p.o.KeyWindow != Forever && now.Sub(b.First) >= p.o.KeyWindow {
		delete(p.keys, id)
		b = nil
	}
	other := p.flights[id]
	drifted := b != nil && b.Params != run.params || other != nil && other.params != run.params
	if drifted && p.o.Drift == DriftDetect {
		a := refuse(400, CodeKeyReused)
		return nil, &a, nil
	}
	if b != nil {
		a := p.replay(b)
		return nil, &a, nil
	}
	run.id = id
	switch {
	case p.o.Concurrent == ConcurrentUnsafe:
	case other == nil:
		p.flights[id] = run
	case p.o.Concurrent == ConcurrentWait:
		return nil, nil, other
	default:
		a := refuse(409, CodeInFlight)
		return nil, &a, nil
	}
	return run, nil, nil
}

func (p *Provider) replay(b *binding) answer {
	r, ok := p.records[b.ObjectID]
	switch {
	case p.o.Replay == ReplayNames && ok:
		return answer{fault: &Fault{Status: 409, Code: CodeAlreadyExists, ExistingID: r.ID}}
	case p.o.Replay == ReplayCurrent && ok && (b.Fault == nil || b.Fault.Status >= 500):
		return answer{object: r.reported()}
	case b.Fault != nil:
		return answer{fault: b.Fault.clone()}
	}
	return answer{object: b.Snapshot}
}

// enter is admit for a caller who can wait.
func (p *Provider) enter(ctx context.Context, req Request) (*flight, *answer, error) {
	for {
		p.lock()
		run, ans, busy := p.admit(req, p.now())
		var changed chan struct{}
		var wake hold
		if busy != nil {
			changed = busy.changed
		}
		if busy != nil && busy.left != nil {
			wake.release = busy.left.release
			if at := busy.left.at; !at.IsZero() {
				wake.after = at.Sub(p.now()) // positive, or it would have landed
			}
		}
		p.unlock()
		if busy == nil {
			return run, ans, nil
		}
		if err := waitEither(ctx, changed, wake); err != nil {
			return nil, nil, err
		}
	}
}

// waitEither waits for the end of a flight, or for what wakes an abandoned one.
func waitEither(ctx context.Context, changed <-chan struct{}, wake hold) error {
	var timer <-chan time.Time
	if wake.after > 0 {
		t := time.NewTimer(wake.after)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-wake.release:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// delayed is a request that takes effect after its caller has given up.
type delayed struct {
	req     Request
	step    Step
	run     *flight // nil while it is still in the network
	release <-chan struct{}
	at      time.Time // zero: no time
}

// due says whether the request lands by now, and when it did.
func (d *delayed) due(now time.Time) (time.Time, bool) {
	if !d.at.IsZero() {
		return d.at, !d.at.After(now)
	}
	select {
	case <-d.release:
		return now, true
	default:
		return now, false
	}
}

// land lets everything that is due take effect, the earliest first: delayed
// requests, and what the clock makes of objects.
func (p *Provider) land() {
	now := p.now()
	for blocked := map[*delayed]bool{}; ; {
		var next *delayed
		var when time.Time
		for _, d := range p.delayed {
			if at, ok := d.due(now); ok && !blocked[d] && (next == nil || at.Before(when)) {
				next, when = d, at
			}
		}
		if id, at := p.nextTurn(); id != "" && !at.After(now) && (next == nil || at.Before(when)) {
			p.takeTurn(id)
			clear(blocked)
			continue
		}
		if next == nil {
			return
		}
		run := next.run
		if run == nil {
			var ans *answer
			var busy *flight
			run, ans, busy = p.admit(next.req, when)
			if busy != nil { // it waits like any other request
				blocked[next] = true
				continue
			}
			if ans != nil {
				run = nil
			}
		}
		p.delayed = slices.DeleteFunc(p.delayed, func(d *delayed) bool { return d == next })
		if run != nil {
			p.execute(run, next.req, next.step, when)
			clear(blocked)
		}
	}
}

// execute runs an admitted request to its end and stores the answer under its
// key.
func (p *Provider) execute(run *flight, req Request, step Step, at time.Time) answer {
	defer p.end(run)
	ans, made := p.perform(req, step, at)
	applied := len(made) > 0 && made[0].Status != StatusFailed
	var first *Fault // what is stored: the first answer
	if first = ans.fault; applied && step.after != nil {
		first = step.after.clone()
	}
	var b *binding
	store := applied || !p.o.CacheOnlySuccess && (first == nil || first.Code != CodeInvalid)
	if run.id.key != "" && store && p.keys[run.id] == nil {
		b = &binding{Account: req.Account, Key: req.Key, Params: run.params, First: run.first}
		if !applied || !p.o.CacheOnlySuccess {
			b.Fault = first
		}
		if len(made) > 0 {
			b.ObjectID, b.Snapshot = made[0].ID, made[0].reported()
		}
	}
	if len(made) > 0 || b != nil {
		if err := p.commit(at, b, made...); err != nil {
			return refuse(500, CodeStorage)
		}
	}
	if len(made) > 0 {
		ans.object = p.records[made[0].ID].reported()
		p.fire = append(p.fire, p.records[made[0].ID].Object)
	}
	return ans
}

// end takes a flight off the list and wakes who waits for it.
func (p *Provider) end(run *flight) {
	if p.flights[run.id] == run {
		delete(p.flights, run.id)
	}
	if run.changed != nil {
		close(run.changed)
	}
}

func (p *Provider) bind(b *binding) {
	if b == nil {
		return
	}
	id := keyID{account: b.Account, key: b.Key}
	if p.o.Drift == DriftNew {
		id.params = b.Params
	}
	p.keys[id] = b
}
