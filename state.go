package settle

// State is what is known about an operation. It is computed from the evidence
// by one function, never set. The words are stored; they never change.
type State string

// The states, each with the caller's safe next action.
const (
	// StateCreated: stored; nothing that may have an effect was sent.
	StateCreated State = "created"
	// StateSubmitting: somebody works on it now and a request is open.
	StateSubmitting State = "submitting"
	// StateUnknown: a request may have reached the provider, nothing says how it
	// ended. Not failed, not in progress. Never start another operation for it.
	StateUnknown State = "unknown"
	// StateProcessing: the provider says that it works on it.
	StateProcessing State = "processing"
	// StateActionRequired: the customer must act.
	StateActionRequired State = "action_required"
	// StateSucceeded: the effect is confirmed.
	StateSucceeded State = "succeeded"
	// StateFailed: it is confirmed that there is no effect.
	StateFailed State = "failed"
	// StateCanceled: withdrawn, and proven that nothing had an effect.
	StateCanceled State = "canceled"
	// StateReview: a person must decide; Record.Review has reason and deadline.
	StateReview State = "review"
	// StateCompensating: the confirmed effect is wholly covered by compensations,
	// some of them still open.
	StateCompensating State = "compensating"
	// StateCompensated: the confirmed effect is wholly undone.
	StateCompensated State = "compensated"
)

// States lists every state, in the order of an operation's life.
func States() []State {
	return []State{
		StateCreated, StateSubmitting, StateUnknown, StateProcessing, StateActionRequired, StateReview,
		StateSucceeded, StateFailed, StateCanceled, StateCompensating, StateCompensated,
	}
}

// Settled reports whether it is known what became of the effect: it exists
// (succeeded, and what compensations made of it) or it does not (failed,
// canceled). Evidence can still move a settled operation.
func (s State) Settled() bool {
	switch s {
	case StateSucceeded, StateFailed, StateCanceled, StateCompensating, StateCompensated:
		return true
	case StateCreated, StateSubmitting, StateUnknown, StateProcessing, StateActionRequired, StateReview:
		return false
	}
	return false
}

// Next is the caller's safe next action in this state.
func (s State) Next() Next {
	switch s {
	case StateSucceeded:
		return NextDone
	case StateFailed:
		return NextShowFailure
	case StateCanceled, StateCompensating, StateCompensated:
		return NextStop
	case StateCreated:
		return NextRetry
	case StateReview:
		return NextWaitPerson
	case StateActionRequired:
		return NextAskCustomer
	case StateSubmitting, StateUnknown, StateProcessing:
		return NextWait
	}
	return NextWait
}

// Next is a safe next action, as a word for programs and models.
type Next string

// The next actions.
const (
	NextRetry       Next = "retry"        // call again with the same operation
	NextWait        Next = "wait"         // wait or poll; never start another operation for the same intent
	NextAskCustomer Next = "ask_customer" // the customer must act, then wait
	NextDone        Next = "done"         // confirmed; ship in the hook, not after the call: a replay is done too
	NextShowFailure Next = "show_failure" // confirmed that nothing happened; a new try names this one in Replaces
	// NextShowReversal: it was done, and came undone: a dispute, a bounced refund. What follows is a new decision, and
	// no retry; a new try names this one in Replaces.
	NextShowReversal Next = "show_reversal"
	NextWaitPerson   Next = "wait_person" // a person decides
	NextStop         Next = "stop"        // do nothing more
	NextFixRequest   Next = "fix_request" // the call itself is wrong; repeating it changes nothing
)

// Advice is one sentence for people and language models.
func (n Next) Advice() string {
	switch n {
	case NextRetry:
		return "It is not settled. Repeat the same operation, unchanged: that is safe. Do not start it under a new request."
	case NextWait:
		return "The outcome is not known yet and the effect may exist. Do not repeat it under a new request, key or purpose; ask for its status later."
	case NextAskCustomer:
		return "The customer must complete a step. Then ask for its status."
	case NextDone:
		return "Confirmed. Do not repeat it."
	case NextShowFailure:
		return "Confirmed that nothing happened. Tell the customer; a new try must name this operation as the one it replaces."
	case NextShowReversal:
		return "It was done, and came undone later. Do not repeat it by yourself: whoever is responsible decides; a new try must name this operation as the one it replaces."
	case NextWaitPerson:
		return "A person is deciding what became of it. The effect may exist: do not repeat it under a new request."
	case NextStop:
		return "Do nothing more with this operation."
	case NextFixRequest:
		return "The request itself was refused and nothing was sent for it. Do not repeat it unchanged."
	}
	return "Do nothing more with this operation."
}
