package settle

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// hookTries is how often a failing hook is run before it is set aside.
const hookTries = 10

// consequence decides what the write of a settled record does about the
// application's hook and about the schedule that a settled row may still need (I11).
// The hook runs in the commit in which the state first becomes succeeded.
func (e *Engine) consequence(k kind, cur, next *Record, w *Write, ed *edit, hookFailed bool) func(context.Context, Tx) error {
	held := cur.Claimed() && next.Token == cur.Token && ed.ifToken == "" // by a worker that runs the hook or a lookup
	switch {
	case next.State == StateCompensated:
		// Never for a wholly compensated operation: not if another effect of it turns up, nor if the
		// compensation comes undone.
		if next.Consequence != ConsequenceDone && next.Consequence != ConsequenceAside {
			next.Consequence = ConsequenceNever
		}
	case next.State != StateSucceeded:
		if next.Consequence == ConsequenceDue {
			next.Consequence = ConsequenceArmed
		}
	case next.Consequence == ConsequenceArmed && next.anyGone():
		// The effect that was confirmed first is being undone; another one must not pass for it.
	case next.Consequence == ConsequenceArmed || next.Consequence == ConsequenceDue && ed.fulfil:
		if k != nil && k.hasHook() && !hookFailed && !ed.later {
			next.Consequence, next.Token = ConsequenceDone, ""
			w.DueIn = schedule(next.Wake, ed)
			return k.hook(next)
		}
		next.Consequence, next.Token, w.DueIn = ConsequenceDue, "", 0
		if ed.fulfil {
			w.DueIn = jitter(time.Minute) // this process has no hook for it: leave it for one that does
		}
		if hookFailed {
			next.HookTries++
			w.DueIn = jitter(backoff(next.HookTries))
			if w.Entry.Source == SourcePerson { // whose reason must stay
				w.Entry.Code = cmp.Or(w.Entry.Code, "hook_failed")
			} else {
				w.Entry.Note = "hook_failed"
			}
		}
		if next.HookTries >= hookTries {
			next.Consequence, w.DueIn = ConsequenceAside, schedule(next.Wake, ed)
			ed.alarms = append(ed.alarms, AlarmAside)
		}
		return nil
	case next.Consequence == ConsequenceDue:
		// Due, and not this write's business: the schedule stays.
		w.DueIn = Keep
		if !held {
			next.Token = ""
			if cur.Token != "" {
				w.DueIn = 0
			}
		}
		return nil
	}
	if held && next.Wake {
		w.DueIn = Keep
		return nil
	}
	next.Token, w.DueIn = "", schedule(next.Wake, ed)
	return nil
}

// schedule is the due of a settled row: never, unless a lookup was asked for; later if
// the holder that writes has just tried in vain.
func schedule(wake bool, ed *edit) time.Duration {
	switch {
	case !wake:
		return Never
	case ed.ifToken != "":
		return jitter(time.Minute)
	}
	return 0
}

// By names who gives an order, and why. Both are required, each a text of at most 1024 bytes; they are
// kept in the history.
type By struct{ Actor, Reason string }

// CodeRedriven is the code of the history entry that Redrive leaves; its note is the reason.
const CodeRedriven = "redriven"

// Redrive runs a consequence that was set aside again, with as many tries as at first, and at once where this
// engine has the hook; else it makes it due for a worker that has. A nil error says that it ran, or is due.
// The same for a message of the feed, of which id may be the operation's or that of the record that keeps its place.
// ErrSettled if there is none to run, ErrRefused by the policy, ErrNotFound, ErrInvalid: nothing was changed. ErrStore: it may
// have been; the same call again is safe.
func (e *Engine) Redrive(ctx context.Context, id string, by By) error {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return e.storeError("redrive", "", id, err)
	}
	for field, v := range map[string]string{"Actor": by.Actor, "Reason": by.Reason} {
		if v == "" || !keepable(v) {
			return invalid("redrive", r.Kind, field, "required: text of at most 1024 bytes")
		}
	}
	may, err := e.permitFor(ctx, "redrive", &r, by.Actor, Ask{Action: ActionRedrive})
	if err != nil {
		return err
	}
	if r.Kind == FeedKind || r.Feed.Pending() {
		if done, err := e.redriveFeed(ctx, strings.TrimPrefix(id, feedID("")), by, may); done || err != nil {
			return err
		}
	}
	_, err = e.update(ctx, "redrive", &r, func(next *Record) (*edit, error) {
		if next.State != StateSucceeded || next.Consequence != ConsequenceAside && next.Consequence != ConsequenceDue {
			return nil, &Error{Do: "redrive", Kind: r.Kind, ID: id, State: next.State, Err: ErrSettled, Cause: because("no consequence is due")}
		}
		next.Consequence, next.HookTries = ConsequenceArmed, 0
		return may.signed(&edit{now: next.AsOf, dueIn: Never, entry: Entry{
			Source: SourcePerson, Code: CodeRedriven, Actor: by.Actor, Note: by.Reason,
		}}), nil
	})
	e.Wake()
	return err
}
