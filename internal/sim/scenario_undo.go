package sim

import (
	"context"
	"slices"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// Undoing an effect in one of several ways, while it changes at the provider which of them is left.

// sceneUndo is an effect that somebody wants undone, in whichever way.
type sceneUndo struct{ id, label, reason string }

// undo is Undo: OP REASON, by a void until the charge is captured.
func (p *sceneProc) undo(label, reason string) (string, error) {
	w := p.w
	id, err := w.id(label)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	if u := (sceneUndo{id, label, reason}); !slices.Contains(w.undos, u) {
		w.undos = append(w.undos, u)
	}
	w.mu.Unlock()
	choose := func(now settle.Observation[providertest.Receipt]) string {
		switch {
		case now.Fact != settle.Applied:
			return ""
		case now.Result.Captured:
			return "refund"
		}
		return "void"
	}
	r, err := p.charge.Undo(context.Background(), settle.Effect{Operation: id}, reason, choose, p.void.Way(providertest.Void{}), p.refund.Way(providertest.Refund{}))
	if p.alive() {
		w.caller(&r, err)
	}
	text := w.verdict(r, false, err)
	if r.Kind != "" {
		text += ", a " + r.Kind
	}
	return text, nil
}

// capturesLater has the provider capture a charge as soon as a lookup has told of it: what is chosen by that answer
// comes too late.
func (w *sceneWorld) capturesLater(ref string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.capture = ref
}

// looked is what happens right after a lookup that found these, for the trace.
func (w *sceneWorld) looked(found ...providertest.Object) string {
	w.mu.Lock()
	ref := w.capture
	now := ref != "" && slices.ContainsFunc(found, func(o providertest.Object) bool { return o.ID == ref })
	if now {
		w.capture = ""
	}
	w.mu.Unlock()
	if !now {
		return ""
	}
	if err := w.provider.Capture(ref); err != nil {
		w.problem("capture %s: %v", ref, err)
	}
	return ", and is captured"
}

// undone counts the voids and refunds of an operation's effect that took effect at the provider.
func (w *sceneWorld) undone(id string) int {
	ledger := w.provider.Ledger()
	n := 0
	for _, o := range ledger {
		ours := func(c providertest.Object) bool { return c.ID == o.Parent && c.Reference == id }
		if o.Status == providertest.StatusSucceeded && slices.ContainsFunc(ledger, ours) {
			n++
		}
	}
	return n
}

// insists has whoever wanted an effect undone ask again until it is, and reports whether anybody had to. Nobody else
// repeats a choice: a refused void leaves the charge as it was.
func (w *sceneWorld) insists(p *sceneProc) bool {
	again := false
	for _, u := range w.undos {
		if w.provider.Effects(u.id) == 0 || w.undone(u.id) > 0 {
			continue
		}
		again = true
		if _, err := p.undo(u.label, u.reason); err != nil {
			w.problem("undo: %v", err)
		}
	}
	return again
}

// checkUndos: of several ways exactly one took effect, and all of the effect is undone (I9).
func (w *sceneWorld) checkUndos() {
	for _, u := range w.undos {
		if w.provider.Effects(u.id) == 0 {
			continue
		}
		if n := w.undone(u.id); n != 1 {
			w.problem("%s was to be undone, and was %d times (I9)", u.label, n)
		}
		for _, o := range w.provider.Ledger() {
			if o.Reference == u.id && w.provider.Remaining(o.ID) != 0 {
				w.problem("%d of %s is left, and it was to be undone", w.provider.Remaining(o.ID), u.label)
			}
		}
	}
}
