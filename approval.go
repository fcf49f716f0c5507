package settle

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Approval says who approved exactly which operation until when. It is checked before anything is stored, and kept
// with the operation for ever; who may approve is for Options.Policy or Authorize to say.
//
// It is bound to the intent as well as to the request: one of "pay invoice 7" does not cover another invoice
// with the same amount. It covers the next try of its own intent (Replaces), since the former had no effect. It is not
// asked for again: a replay is answered without one, and after its end.
type Approval struct {
	By          string    `json:"by"`             // who approved; required
	At          time.Time `json:"at"`             // when
	Until       time.Time `json:"until,omitzero"` // counts as SendBefore, by the store's clock; zero: no end
	Fingerprint string    `json:"fingerprint"`    // Executor.Fingerprint of the approved operation; required
	Note        string    `json:"note,omitempty"` // optional reference to the decision, not its content
}

// approvalForm begins what an approval is bound to; a change of what is in it needs another word.
const approvalForm = "op-1:"

// approvable is what an approval of r is bound to: what makes it that operation, and the request. undo is the effect as
// it was asked for. The scope of a compensation is that of what it undoes.
func approvable(r *Record, undo Undo, fp Fingerprint) string {
	parts := []string{r.Kind, r.Scope, r.Subject, r.Purpose, fp.Rule, fp.Sum}
	if undo.Operation != "" {
		parts = []string{r.Kind, undo.Operation, undo.Ref, r.Purpose, fp.Rule, fp.Sum, "undo"}
	}
	sum := sha256.Sum256([]byte(joined(parts)))
	return approvalForm + hex.EncodeToString(sum[:])
}

// Fingerprint returns what an approval of op must be bound to: a hash of its intent and its request. Everything in op but
// Key, Hold, Replaces, SendBefore and Approval counts. It uses no store.
func (x *Executor[Req, Res]) Fingerprint(op Operation[Req]) (string, error) {
	const do = "fingerprint"
	if (op.Undoes.Operation != "") != (x.opts.Undoes != "") {
		return "", invalid(do, x.kindOf, "Undoes", "must be set exactly if the kind was made with Undoes")
	}
	undo := Undo{Operation: op.Undoes.Operation, Ref: op.Undoes.Ref}
	in := op.Intent()
	if undo.Operation != "" {
		in.Subject = undoSubject(undo)
		if in.Scope == "" {
			in.Scope = "-" // that of what it undoes, which is not read here and does not count
		}
	}
	in, err := x.intent(do, in)
	if err != nil {
		return "", err
	}
	_, fp, err := x.encode(do, op.Request, nil)
	if err != nil {
		return "", err
	}
	return approvable(&Record{Kind: x.kindOf, Scope: in.Scope, Subject: in.Subject, Purpose: in.Purpose}, undo, fp), nil
}

// approve checks an approval against the operation it is bound to. refused counts only
// while no record exists, like every precondition; err says that the approval is malformed.
func (d *draft) approve(a *Approval, rule *hashRule) (refused, err error) {
	if a == nil {
		return nil, nil
	}
	r := &d.record
	if checkName("By", a.By, MaxSubject) != nil || a.Fingerprint == "" || !keepable(a.Note) {
		return nil, invalid(d.do, r.Kind, "Approval", "By and Fingerprint are required, Note is text of at most 1024 bytes")
	}
	undo := Undo{Operation: r.Undoes.Operation, Ref: r.Undoes.Ref}
	is := func(fp Fingerprint) bool { return a.Fingerprint == approvable(r, undo, fp) }
	if !is(r.Fingerprint) && !slices.ContainsFunc(rule.each(r.Request), is) { // it may have been made under an older key
		why := because("the approval is for another request or intent")
		return &Error{Do: d.do, Kind: r.Kind, Err: ErrRefused, Fields: []string{"Approval"}, Cause: why}, nil
	}
	c := *a
	c.At, c.Until = micros(a.At), micros(a.Until)
	r.Approval = &c
	d.until(c.Until)
	return nil, nil
}

// until makes t the operation's SendBefore if that is later, or none.
func (d *draft) until(t time.Time) {
	switch {
	case t.Year() > 9999:
		return // never
	case !t.IsZero() && t.Year() < 1970:
		t = time.Unix(0, 0) // long ago
	}
	if r := &d.record; !t.IsZero() && (r.SendBefore.IsZero() || t.Before(r.SendBefore)) {
		r.SendBefore = micros(t)
	}
}
