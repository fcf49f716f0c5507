package settle

import (
	"context"
	"time"
)

// Policy says who may do what. It is asked before anything is stored, sent or decided, once per call,
// and not for what exists: calling an operation again only reports it, and an effect may by then have
// falsified what allowed it. An error refuses the call: ErrRefused, with the policy's error as cause; nothing is
// stored and the intent stays free. A panic refuses too. It is pure or reads what it needs itself; it may be
// called from any number of goroutines, under a context that has the caller's values but not always its deadline.
//
// It sees names, amounts and the approval, never the request: what only the request tells is for
// ExecutorOptions.Authorize, which is asked after it.
type Policy func(ctx context.Context, ask Ask) (Grant, error)

// Ask is one question to a Policy. Fields that an action has no use for are zero.
type Ask struct {
	Action Action
	// Actor is who asks, as WithActor noted it after authentication; empty if nobody did. What
	// Decision.Actor and its like say is checked against it and is no proof by itself.
	Actor string
	// Kind, Scope, Subject and Purpose name the operation. Of ActionCompensate they name the compensation,
	// whose purpose is the reason; Undoes is what it undoes.
	Kind, Scope, Subject, Purpose string
	// Operation is the id of the record that is acted on; empty for one that does not exist yet.
	Operation string
	// Replaces is the id of the try that failed, whose next one this is.
	Replaces string
	Undoes   Effect
	// Terms are what was asked for, the amount among it, as the adapter states them.
	Terms Terms
	// Approval is the one that came with the operation, if any. That it is of this very operation was checked;
	// who may approve, and that they did, is the policy's to say.
	Approval *Approval
	// Fact and Resume are those of a Decision; Fact also that of a Foreign.
	Fact   Fact
	Resume bool
}

// Action is what a Policy is asked to allow.
type Action string

// The actions.
const (
	ActionStart      Action = "start"          // Execute, Register, RegisterTx of an operation that does not exist
	ActionCompensate Action = "compensate"     // the same of a compensation, Compensate among it
	ActionCancel     Action = "cancel"         // Cancel, of an operation or of an intent that has none yet
	ActionResolve    Action = "resolve"        // a person's decision
	ActionAssign     Action = "assign"         // who is to decide
	ActionRedrive    Action = "redrive"        // a consequence that was set aside
	ActionForeign    Action = "record_foreign" // what a person found undone elsewhere
)

// Grant is a Policy's yes.
type Grant struct {
	// Rule names the decision that allowed it, for the history: a rule's name, a ticket. A text of at most MaxRule
	// bytes, and no data of the request. Optional.
	Rule string
	// Until counts as SendBefore of an operation that starts; zero: no end.
	Until time.Time
}

// MaxRule bounds Grant.Rule, in bytes.
const MaxRule = 255

type actorKey struct{}

// WithActor notes in a context who acts: a user, a service, an agent, as authenticated by the application. Policies
// see it and the history keeps it: a name of at most 255 bytes, never a credential. An empty
// actor is nobody.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor that WithActor noted; empty if none.
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// permit is an answer of the policy that allowed something, and who it was.
type permit struct {
	actor string
	grant Grant
}

// sign notes p in a history entry.
func (p permit) sign(x *Entry) {
	if p.actor != "" {
		x.Actor = p.actor
	}
	x.Rule = p.grant.Rule
}

// signed notes p in the entry of ed, if there is one.
func (p permit) signed(ed *edit) *edit {
	if ed != nil {
		p.sign(&ed.entry)
	}
	return ed
}

// permit asks the policy. do is for the error.
func (e *Engine) permit(ctx context.Context, do string, ask Ask) (permit, error) {
	ask.Actor = ActorOf(ctx)
	if ask.Actor != "" && checkName("actor", ask.Actor, MaxSubject) != nil {
		return permit{}, invalid(do, ask.Kind, "actor", "a name of at most 255 bytes")
	}
	p := permit{actor: ask.Actor}
	if e.opts.Policy == nil {
		return p, nil
	}
	if ask.Approval != nil {
		a := *ask.Approval
		ask.Approval = &a
	}
	ask.Terms = ask.Terms.clone()
	err := func() (err error) {
		defer contain(&err)
		p.grant, err = e.opts.Policy(ctx, ask)
		return err
	}()
	switch {
	case err != nil:
		return permit{}, &Error{Do: do, Kind: ask.Kind, ID: ask.Operation, Err: ErrRefused, Fields: []string{"Policy"}, Cause: err}
	case len(p.grant.Rule) > MaxRule || !keepable(p.grant.Rule):
		return permit{}, &Error{Do: do, Kind: ask.Kind, ID: ask.Operation, Err: ErrRefused, Fields: []string{"Policy"}, Cause: because("the rule is no text of at most 255 bytes")}
	}
	return p, nil
}

// permitFor asks the policy about something that a person does to r. actor is who the call says it is: if somebody was
// authenticated, it must be them.
func (e *Engine) permitFor(ctx context.Context, do string, r *Record, actor string, ask Ask) (permit, error) {
	if who := ActorOf(ctx); who != "" && actor != "" && who != actor {
		return permit{}, &Error{Do: do, Kind: r.Kind, ID: r.ID, Err: ErrRefused, Fields: []string{"Actor"}, Cause: because("somebody else was authenticated")}
	}
	ask.Kind, ask.Scope, ask.Subject, ask.Purpose = r.Kind, r.Scope, r.Subject, r.Purpose
	ask.Operation, ask.Terms, ask.Approval = r.ID, r.Terms, r.Approval
	if r.Undoes.Operation != "" {
		ask.Undoes = Effect{Operation: r.Undoes.Operation, Ref: r.Undoes.Ref}
	}
	return e.permit(ctx, do, ask)
}
