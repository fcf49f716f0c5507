package settle

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
)

// draft is a call's operation, checked and encoded, before anything is stored.
type draft struct {
	do        string
	record    Record // without id and bookkeeping
	givenKey  bool
	ambiguous bool                        // a compensation that names none of several effects
	parent    *Record                     // of a compensation, as it was read; nil: to be read again
	twin      *Record                     // the same compensation, asked for in another way
	authorize func(context.Context) error // nil: none
	actor     string                      // who was authenticated
	approval  *Approval                   // as it was given
	permit    permit                      // the policy's, once it was asked
	finish    func(generation int)        // derives key and provider key
	replaced  *Write                      // the former try, losing its intent in the same commit
	read      any                         // the request as it was read back from its stored form; see Executor.sent
	seen      bool                        // this process has seen the intent settled
	known     *Record                     // and has its record
}

// flight keys what callers share: the same operation asked for in the same way.
func (d *draft) flight() string {
	r := &d.record
	parts := []string{r.Scope, r.Kind, r.Key, r.Subject, r.Purpose, r.Fingerprint.Sum, r.Hold, r.Replaces}
	return joined(parts)
}

// authority keys what callers share of a refusal: who asked, with which approval.
func (d *draft) authority() string {
	parts := []string{d.actor}
	if a := d.approval; a != nil {
		parts = append(parts, a.By, a.Fingerprint, stampText(a.Until))
	}
	return joined(parts)
}

// joined is an injective encoding of parts.
func joined(parts []string) string {
	n := 8 * len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = strconv.AppendInt(b, int64(len(p)), 10)
		b = append(b, ':')
		b = append(b, p...)
	}
	return string(b)
}

func (x *Executor[Req, Res]) intent(do string, in Intent) (Intent, error) {
	if in.Scope == "" {
		in.Scope = x.e.opts.Scope
	}
	for _, f := range []struct {
		name, value string
		max         int
	}{{"Scope", in.Scope, MaxScope}, {"Subject", in.Subject, MaxSubject}, {"Purpose", in.Purpose, MaxPurpose}} {
		if err := checkName(f.name, f.value, f.max); err != nil {
			return in, badName(do, x.kindOf, f.name, err)
		}
	}
	return in, nil
}

// encode makes the stored form of a request and its fingerprint, which is that of known if it has the same request.
func (x *Executor[Req, Res]) encode(do string, req Req, known *Record) (data []byte, fp Fingerprint, err error) {
	data, err = encodeRequest(req)
	if err == nil {
		err = checkSize("Request", len(data), MaxRequest)
	}
	switch {
	case err != nil:
	case known != nil && x.rule.made(known.Fingerprint) && bytes.Equal(known.Request, data):
		fp = known.Fingerprint
		fp.Volatile = slices.Clone(fp.Volatile)
	default:
		fp, err = x.rule.sum(data)
	}
	if err != nil {
		field := "Request"
		var re *requestError
		if errors.As(err, &re) && re.Path != "" {
			field = re.Path
		}
		return nil, fp, &Error{Do: do, Kind: x.kindOf, Err: ErrInvalid, Fields: []string{field}, Cause: err}
	}
	return data, fp, nil
}

// begin checks what identifies a call and encodes its request: all that a replay needs.
// It uses no store, except that the parent of a compensation gives it scope and subject.
func (x *Executor[Req, Res]) begin(ctx context.Context, on committer, do string, op *Operation[Req]) (*draft, error) {
	if (op.Undoes.Operation != "") != (x.opts.Undoes != "") {
		why := "the kind was made without Undoes"
		if x.opts.Undoes != "" {
			why = "name the operation to undo: the kind was made with Undoes"
		}
		return nil, invalid(do, x.kindOf, "Undoes", why)
	}
	var undo Undo
	var ambiguous bool
	var parent *Record
	if op.Undoes.Operation != "" {
		if op.Subject != "" || op.Key != "" {
			field := "Subject"
			if op.Subject == "" {
				field = "Key"
			}
			return nil, invalid(do, x.kindOf, field, "a compensation is named by its effect and reason")
		}
		undo = Undo{Operation: op.Undoes.Operation, Ref: op.Undoes.Ref}
		if undo.Ref != "" {
			if err := checkName("Undoes.Ref", undo.Ref, MaxRef); err != nil {
				return nil, invalid(do, x.kindOf, "Undoes", err.Error())
			}
		}
		found, err := x.e.getOn(ctx, on, ByID(undo.Operation))
		if err != nil {
			return nil, x.e.storeError(do, x.kindOf, undo.Operation, err)
		}
		parent = &found
		if parent.Kind != x.opts.Undoes {
			return nil, invalid(do, x.kindOf, "Undoes", "the operation is of another kind")
		}
		if op.Scope != "" && op.Scope != parent.Scope {
			return nil, &Error{Do: do, Kind: x.kindOf, Err: ErrNotFound, Fields: []string{"Scope"}}
		}
		var effect Effect
		effect, _, ambiguous = parent.target(undo)
		op.Undoes, op.Scope, op.Subject = effect, parent.Scope, undoSubject(undo)
	}
	in, err := x.intent(do, op.Intent())
	if err != nil {
		return nil, err
	}
	op.Scope = in.Scope
	for _, f := range []struct {
		name, value string
		max         int
	}{{"Key", op.Key, MaxKey}, {"Hold", op.Hold, MaxHold}, {"Replaces", op.Replaces, 64}} {
		if f.value == "" {
			continue
		}
		if err := checkName(f.name, f.value, f.max); err != nil {
			return nil, badName(do, x.kindOf, f.name, err)
		}
	}
	if !keepableTime(op.SendBefore) {
		return nil, invalid(do, x.kindOf, "SendBefore", "not between 1970 and 9999")
	}
	actor := ActorOf(ctx)
	if actor != "" {
		if err := checkName("actor", actor, MaxSubject); err != nil {
			return nil, badName(do, x.kindOf, "actor", err)
		}
	}
	d := &draft{do: do, givenKey: op.Key != "", ambiguous: ambiguous, parent: parent, actor: actor, approval: op.Approval, record: Record{
		Scope: op.Scope, Kind: x.kindOf, Key: op.Key, Subject: op.Subject, Purpose: op.Purpose, Hold: op.Hold,
		Replaces: op.Replaces, Undoes: undo, Account: x.home, KeyWindow: x.promise.Keys.Window, SendBefore: micros(op.SendBefore),
	}}
	d.known, d.seen = x.e.known.was(&d.record)
	d.record.Request, d.record.Fingerprint, err = x.encode(do, op.Request, d.known)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// complete adds to d what creating the operation needs.
func (x *Executor[Req, Res]) complete(d *draft, op Operation[Req]) (*draft, error) {
	do := d.do
	if x.opts.OnSuccess != nil {
		d.record.Consequence = ConsequenceArmed
	}
	refused, err := d.approve(op.Approval, x.rule)
	if err != nil {
		return nil, err
	}
	// Terms see the request as it will be read back, so that the first send and every
	// later one derive the same.
	again, err := x.stored(&d.record, op.Undoes)
	if err != nil {
		return nil, &Error{Do: do, Kind: x.kindOf, Err: ErrInvalid, Fields: []string{"Request"}, Cause: because("does not survive being stored and read back")}
	}
	again.Key, d.read = op.Key, x.sent(again.Request)
	if d.record.Terms, err = x.terms(again); err != nil {
		return nil, invalid(do, x.kindOf, "Terms", "the adapter panicked")
	}
	d.record.Terms = d.record.Terms.clone()
	if reason := d.record.Terms.Amount.problem(); reason != "" {
		return nil, invalid(do, x.kindOf, "Terms.Amount", reason)
	}
	if op.Undoes.Operation != "" {
		d.record.Undoes.Whole = x.whole(again, d.record.Terms)
	}
	switch {
	case refused != nil:
		d.authorize = func(context.Context) error { return refused }
	case x.opts.Authorize != nil || x.e.opts.Policy != nil:
		d.authorize = x.authorizing(d, op)
	}
	d.finish = func(generation int) { x.finishKey(d, generation) }
	d.finish(0)
	return d, nil
}

// sent is the request as it was read back, for makeCall.
func (x *Executor[Req, Res]) sent(req Req) any { return &req }

// authorizing is authorize for later. A function of its own, so that op is kept only where it is asked.
func (x *Executor[Req, Res]) authorizing(d *draft, op Operation[Req]) func(context.Context) error {
	return func(ctx context.Context) error { return x.authorize(ctx, d, op) }
}

// authorize asks the policy, and then the kind's own precondition, whether d may be stored.
func (x *Executor[Req, Res]) authorize(ctx context.Context, d *draft, op Operation[Req]) (err error) {
	r := &d.record
	ask := Ask{
		Action: ActionStart, Kind: r.Kind, Scope: r.Scope, Subject: r.Subject, Purpose: r.Purpose, Replaces: r.Replaces,
		Undoes: op.Undoes, Terms: r.Terms, Approval: r.Approval,
	}
	if r.Undoes.Operation != "" {
		ask.Action = ActionCompensate
	}
	if d.permit, err = x.e.permit(ctx, d.do, ask); err != nil {
		return err
	}
	d.until(d.permit.grant.Until)
	if x.opts.Authorize == nil {
		return nil
	}
	defer contain(&err)
	return x.opts.Authorize(ctx, op)
}

// whole reports whether a compensation is of the whole effect, whatever that is: its terms have no
// amount, or the effect's, which another effect would change.
func (x *Executor[Req, Res]) whole(op Operation[Req], t Terms) bool {
	if t.Amount.IsZero() || !t.Amount.Equal(op.Undoes.Amount) {
		return t.Amount.IsZero()
	}
	op.Undoes.Amount = sum(t.Amount, t.Amount)
	other, err := x.terms(op)
	return err == nil && other.Amount.Equal(op.Undoes.Amount)
}

// draft is begin and complete.
func (x *Executor[Req, Res]) draft(ctx context.Context, on committer, do string, op Operation[Req]) (*draft, error) {
	d, err := x.begin(ctx, on, do, &op)
	if err != nil {
		return nil, err
	}
	return x.complete(d, op)
}

// finishKey derives what depends on the replacement generation.
func (x *Executor[Req, Res]) finishKey(d *draft, generation int) {
	r := &d.record
	r.Generation = generation
	gen := strconv.Itoa(generation)
	var parts []string
	if d.givenKey {
		parts = []string{r.Scope, r.Kind, "k", r.Key, r.Subject, r.Purpose, gen} // once retired, a key may come back for another intent
	} else {
		parts = []string{r.Scope, r.Kind, "i", r.Subject, r.Purpose, gen}
	}
	if x.shape != nil {
		r.ProviderKey = x.shape.key(parts...)
	}
}

// differing explains a mismatch: names, never values (I3).
func differing(stored *Record, d *draft) []string {
	if stored.Request == nil || stored.Request.Sealed() {
		return nil // after retention, or without its key, only the hash is left
	}
	return slices.Clip(differingFields(stored.Fingerprint, stored.Request, d.record.Request))
}
