package settle

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// The methods in this file are what the core sees of an Executor. Each call of
// user code is contained: a panic is no answer, never a crash (I4).

func (x *Executor[Req, Res]) name() string                 { return x.kindOf }
func (x *Executor[Req, Res]) contract() Contract           { return x.promise }
func (x *Executor[Req, Res]) account() string              { return x.home }
func (x *Executor[Req, Res]) undoes() string               { return x.opts.Undoes }
func (x *Executor[Req, Res]) escalateAfter() time.Duration { return x.opts.EscalateAfter }
func (x *Executor[Req, Res]) hasHook() bool                { return x.opts.OnSuccess != nil }
func (x *Executor[Req, Res]) limits() (int, Rate)          { return x.opts.Concurrency, x.opts.Rate }
func (x *Executor[Req, Res]) mute() bool                   { return x.ignored.Load() }

func (x *Executor[Req, Res]) covers(f Fingerprint, request []byte) (bool, error) {
	return x.rule.covers(f, request)
}

// contain turns a panic of user code into an error that does not quote it.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = errPanic
	}
}

// stored makes the operation again from its record; nothing comes from anywhere else.
func (x *Executor[Req, Res]) stored(r *Record, undo Effect) (op Operation[Req], err error) {
	defer contain(&err)
	op = Operation[Req]{
		Scope: r.Scope, Subject: r.Subject, Purpose: r.Purpose, Key: r.Key, Hold: r.Hold, Replaces: r.Replaces,
		Undoes: undo, SendBefore: r.SendBefore, Approval: r.Approval,
	}
	if len(r.Request) == 0 && !r.PrunedAt.IsZero() {
		return op, nil // for a lookup or a report; nothing is sent any more
	}
	if len(r.Request) == 0 {
		return op, errors.New("settle: the stored request is gone")
	}
	if r.Request.Sealed() {
		return op, ErrSealed
	}
	err = decodeStored(r.Request, &op.Request, x.numbers)
	return op, err
}

func (x *Executor[Req, Res]) terms(op Operation[Req]) (t Terms, err error) {
	defer contain(&err)
	return x.adapter.Terms(op), nil
}

func (x *Executor[Req, Res]) deriveTerms(r *Record, undo Effect) (Terms, error) {
	op, err := x.stored(r, undo)
	if err != nil {
		return Terms{}, err
	}
	return x.terms(op)
}

// makeCall builds a call from the record. read is its request if this very call has
// read it back from its stored form already, else nil.
func (x *Executor[Req, Res]) makeCall(r *Record, undo Effect, attempt int, read any) (*Call[Req], error) {
	req, ok := read.(*Req)
	if !ok {
		op, err := x.stored(r, undo)
		if err != nil {
			return nil, err
		}
		req = &op.Request
	}
	c := &Call[Req]{
		ID: r.ID, Scope: r.Scope, Subject: r.Subject, Purpose: r.Purpose, Request: *req, Terms: r.Terms.clone(),
		Ref: r.knownRef(), Undoes: undo, Attempt: attempt, key: r.ProviderKey,
	}
	return c, nil
}

// knownRef is the reference to look up by, once one is known.
func (r *Record) knownRef() string {
	best := Reference{}
	for _, x := range r.references() {
		// A reference that failed is one try of several, or finished: what matters is whether
		// there is another, and only the operation's own reference finds that (T-03).
		if x.Ref != "" && x.Rank != RankFailed && (best.Ref == "" || x.Rank.order() > best.Rank.order()) {
			best = x
		}
	}
	return best.Ref
}

func (x *Executor[Req, Res]) submit(ctx context.Context, r *Record, undo Effect, attempt int, read any, used *atomic.Bool) (rep reply, err error) {
	defer contain(&err)
	if !r.PrunedAt.IsZero() {
		return reply{ev: evidence{fact: NotSent, code: ReasonPruned}}, nil
	}
	c, err := x.makeCall(r, undo, attempt, read)
	if err != nil {
		return reply{ev: evidence{fact: NotSent, code: "unreadable_request"}}, nil //nolint:nilerr // nothing left: that is a fact
	}
	c.used = used
	obs, err := x.adapter.Submit(ctx, c)
	if err == nil && obs.Fact == Applied && x.promise.Keys.Window > 0 && !c.used.Load() {
		x.ignored.Store(true) // this kind sends nothing more in this process
	}
	return x.read(obs, err)
}

func (x *Executor[Req, Res]) lookup(ctx context.Context, r *Record, undo Effect) (rep reply, err error) {
	defer contain(&err)
	c, err := x.makeCall(r, undo, 0, nil)
	if err != nil {
		return reply{}, err
	}
	obs, err := x.adapter.Lookup(ctx, c)
	return x.read(obs, err)
}

// event reads an event. Without a reader it only asks for a lookup.
func (x *Executor[Req, Res]) event(ctx context.Context, ev Event) (rep reply, err error) {
	defer contain(&err)
	reader, ok := x.adapter.(EventReader[Res])
	if !ok {
		return reply{}, nil
	}
	obs, err := reader.ReadEvent(ctx, ev)
	switch obs.Fact {
	case NotSent, NotApplied, NotFound:
		obs.Fact = Unclear // no event can speak for an attempt, or for nothing
	case Unclear, Applied, Declined, Underway, NeedsAction, Reversed:
	}
	return x.read(obs, err)
}

// read takes an observation out of its type.
func (x *Executor[Req, Res]) read(obs Observation[Res], err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	switch obs.Fact {
	case Unclear, Applied, Declined, NotSent, NotApplied, Underway, NeedsAction, NotFound, Reversed:
	default:
		return reply{}, errEmpty
	}
	rep := reply{retryAfter: min(max(0, obs.RetryAfter), maxRetryAfter), ev: evidence{
		fact: obs.Fact, ref: obs.Ref, terms: obs.Terms, code: cleanCode(obs.Code), message: storable(obs.Message, 1024),
		action: storable(obs.Action, maxAction), sequence: obs.Sequence,
	}}
	if len(obs.Action) > maxAction {
		rep.ev.action, rep.ev.code = "", "action_too_long" // half a URL or secret is of no use
	}
	if obs.Ref != "" && checkName("Ref", obs.Ref, MaxRef) != nil {
		rep.ev.ref, rep.ev.code = "", "bad_reference" // evidence is kept without a name that no store could keep
	}
	if reason := rep.ev.terms.Amount.problem(); reason != "" && obs.Terms.Amount.Value.Sign() != 0 {
		rep.ev.terms.Amount, rep.ev.code = Amount{}, "bad_amount" // nothing of the kind was asked for: disputed, and nothing else
	}
	if obs.Fact == Applied {
		data, err := encodeRequest(obs.Result)
		if err != nil || isSealed(data) || checkSize("Result", len(data), MaxResult) != nil {
			rep.ev.code = "unreadable_result" // the effect is confirmed all the same
		} else {
			rep.ev.result = data
		}
	}
	return rep, nil
}

// maxRetryAfter bounds Observation.RetryAfter: a date taken for a duration must not park an
// operation for decades.
const maxRetryAfter = 24 * time.Hour

// maxAction bounds Observation.Action.
const maxAction = 4096

// storable makes s a text of at most n bytes that every store can keep.
func storable(s string, n int) string {
	if isSealed(s) {
		s = "\uFFFD" + s // not by us
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s[:min(len(s), n+utf8.UTFMax)])
		s = s[:min(len(s), n+utf8.UTFMax)-size]
	}
	return s
}

func (x *Executor[Req, Res]) hook(next *Record) func(context.Context, Tx) error {
	r := next.Clone()
	return func(ctx context.Context, tx Tx) error {
		if r.Sealed() {
			return ErrSealed // not without the result: it stays due, and is run when the key is back
		}
		out, _ := x.verdict("hook", r, false)
		out.Next = NextDone
		ctx, cancel := context.WithTimeout(ctx, x.e.opts.StoreTimeout) // it holds a transaction
		defer cancel()
		ended := make(chan error, 1)
		go func() { // a hook may end its goroutine, as a failed assertion does
			err := errPanic
			defer func() {
				if p := recover(); p != nil {
					err = errPanic
				}
				ended <- err
			}()
			err = x.opts.OnSuccess(ctx, tx, out)
		}()
		return <-ended
	}
}
