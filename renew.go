package settle

import (
	"context"
	"errors"
	"sync"
	"time"
)

// keeper keeps one claim while its holder works, and cancels the holder's context
// when the claim is lost or could not be renewed in time (I5).
type keeper struct {
	k      *renewer
	kind   string
	id     string
	c      *claim
	cancel context.CancelCauseFunc

	// These are guarded by k.mu.
	renewed time.Time // our clock before the last step that moved the lease
	next    time.Time // when to renew, by the timer's clock
	stopped bool      // the holder has finished, or the claim is lost
	gone    bool      // it is lost, unless a write of the holder ended it
	err     error     // of the last renewal
}

// renewer renews all claims that an engine holds, those whose time comes together in one call
// of the store.
type renewer struct {
	e *Engine

	mu     sync.Mutex
	held   map[*keeper]struct{}
	timer  *time.Timer
	wakeAt time.Time // when timer fires; zero: it does not
	asking bool      // a call of the store is under way: the next one waits for it
}

func newRenewer(e *Engine) *renewer { return &renewer{e: e, held: make(map[*keeper]struct{})} }

// The intervals of renewals, as parts of a lease. A claim is renewed early, with those whose
// time has come, once half of its interval is over: so the claims of a process fall into step.
func renewEvery(lease time.Duration) time.Duration { return lease / 3 }
func renewAgain(lease time.Duration) time.Duration { return lease / 10 }
func renewEarly(lease time.Duration) time.Duration { return lease / 6 }

func (e *Engine) keepAlive(ctx context.Context, r *Record, c *claim) (context.Context, *keeper) {
	ctx, cancel := context.WithCancelCause(ctx)
	k := e.renewals
	kp := &keeper{k: k, kind: r.Kind, id: r.ID, c: c, cancel: cancel, renewed: c.sent}
	k.mu.Lock()
	defer k.mu.Unlock()
	kp.next = time.Now().Add(renewEvery(c.lease))
	k.held[kp] = struct{}{}
	k.wake(kp.next)
	return ctx, kp
}

// stop ends the keeping. Only now it is known whether a claim that the store does not know any more was lost: a renewal
// that meets the holder's own last write, which gave the claim up, hears the same.
func (kp *keeper) stop() {
	kp.k.mu.Lock()
	kp.k.drop(kp)
	lost := kp.gone && !kp.c.ended.Load()
	kp.k.mu.Unlock()
	kp.cancel(nil)
	if lost {
		kp.k.e.obs.Notice(context.Background(), Notice{Event: EventClaimLost, Kind: kp.kind, Operation: kp.id})
	}
}

// touched notes that a commit of the holder, sent at sent, moved the lease.
func (kp *keeper) touched(sent time.Time) {
	kp.k.mu.Lock()
	defer kp.k.mu.Unlock()
	kp.moved(sent)
}

func (kp *keeper) moved(sent time.Time) {
	if sent.After(kp.renewed) {
		kp.renewed = sent
	}
}

// left is how long the claim is surely ours.
func (kp *keeper) left() time.Duration {
	kp.k.mu.Lock()
	defer kp.k.mu.Unlock()
	return kp.rest()
}

func (kp *keeper) rest() time.Duration {
	return kp.c.lease - kp.c.margin() - elapsed(kp.renewed, kp.k.e.opts.Clock.Now())
}

// wake makes tick run at t, or earlier.
func (k *renewer) wake(t time.Time) {
	if !k.wakeAt.IsZero() && !t.Before(k.wakeAt) {
		return
	}
	k.wakeAt = t
	d := max(0, time.Until(t))
	if k.timer == nil {
		k.timer = time.AfterFunc(d, k.tick)
	} else {
		k.timer.Reset(d)
	}
}

// drop forgets a claim. Without any the timer stands still.
func (k *renewer) drop(kp *keeper) {
	kp.stopped = true
	delete(k.held, kp)
	if len(k.held) == 0 && k.timer != nil {
		k.timer.Stop()
		k.wakeAt = time.Time{}
	}
}

// tick gives up the claims whose time is over and renews those whose time has come. While the
// store has not answered, the deadlines of all claims are watched all the same.
func (k *renewer) tick() {
	k.mu.Lock()
	k.wakeAt = time.Time{}
	lost := k.overdue()
	var batch []*keeper
	if !k.asking {
		batch = k.due(time.Now())
		k.asking = len(batch) > 0
	}
	k.plan()
	k.mu.Unlock()
	for _, kp := range lost {
		kp.lost()
	}
	if len(batch) > 0 {
		k.renew(batch)
	}
}

// overdue takes out the claims of which nobody can say that they are ours.
func (k *renewer) overdue() []*keeper {
	var out []*keeper
	for kp := range k.held {
		if kp.rest() <= 0 {
			k.drop(kp)
			kp.gone = true
			out = append(out, kp)
		}
	}
	return out
}

// due lists the claims to renew now: none unless one's time has come.
func (k *renewer) due(now time.Time) []*keeper {
	var out []*keeper
	come := false
	for kp := range k.held {
		come = come || !kp.next.After(now)
		if !kp.next.After(now.Add(renewEarly(kp.c.lease))) {
			out = append(out, kp)
		}
	}
	if !come {
		return nil
	}
	return out
}

// plan sets the timer for whatever comes first: the end of a claim, or a renewal.
func (k *renewer) plan() {
	now := time.Now()
	for kp := range k.held {
		at := now.Add(max(time.Millisecond, kp.rest()))
		if !k.asking && kp.next.Before(at) {
			at = kp.next
		}
		k.wake(at)
	}
}

// renew asks the store for all claims of batch at once. Each is answered for itself.
func (k *renewer) renew(batch []*keeper) {
	e := k.e
	held := make([]Held, len(batch))
	k.mu.Lock()
	var patience time.Duration // after which nobody waits for the answer any more
	for i, kp := range batch {
		held[i] = Held{ID: kp.id, Token: kp.c.token}
		patience = max(patience, kp.rest())
	}
	k.mu.Unlock()
	sent := e.opts.Clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(patience, e.opts.StoreTimeout))
	said, err := e.store.Renew(ctx, held, e.opts.Lease)
	cancel()
	if err == nil && len(said) != len(held) {
		err = errors.New("settle: the store did not answer for each claim")
	}
	if err != nil {
		said = make([]error, len(held))
		for i := range said {
			said[i] = err
		}
	}
	k.answered(batch, said, sent)
}

func (k *renewer) answered(batch []*keeper, said []error, sent time.Time) {
	var lost, unsure []*keeper
	now := time.Now()
	k.mu.Lock()
	k.asking = false
	for i, kp := range batch {
		if kp.stopped {
			continue
		}
		switch err := said[i]; {
		case err == nil:
			kp.err = nil
			kp.moved(sent)
			kp.next = now.Add(renewEvery(kp.c.lease))
		case errors.Is(err, ErrClaimLost):
			k.drop(kp)
			kp.gone = true
			lost = append(lost, kp)
		default:
			kp.err = err
			kp.next = now.Add(renewAgain(kp.c.lease))
			unsure = append(unsure, kp)
		}
	}
	lost = append(lost, k.overdue()...)
	k.plan()
	k.mu.Unlock()
	for _, kp := range unsure {
		k.e.obs.Notice(context.Background(), Notice{Event: EventStoreError, Kind: kp.kind, Operation: kp.id, Code: "renew"})
	}
	for _, kp := range lost {
		kp.lost()
	}
}

// lost tells the holder. It is called once, after drop, and perhaps after stop.
func (kp *keeper) lost() { kp.cancel(errors.Join(ErrClaimLost, kp.err)) }
