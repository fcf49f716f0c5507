package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// I12: everything that was said about an operation is in its history, in order, what was
// superseded too. That there is one entry for each version, claims excepted, is checked
// after every scenario.
func I12(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		promise := l.contract(func(c *settle.Contract) { c.Deadline = time.Minute })
		release := l.Gate()
		_, done := l.slowHolder(promise, providertest.HangBefore(release.C).And(providertest.Processing()))
		id := l.Only().ID
		l.Provider.Script(providertest.InFlight(), providertest.InFlight())
		q := l.Start(&Setup{Promise: promise}).Work()
		l.wantErr(<-done, settle.ErrPending)
		l.At(lease + 2*time.Second)
		release.Open()
		l.Elapse(time.Second)
		l.Until(id, 10*time.Minute, func(r settle.Record) bool { return r.Progress != nil && r.Progress.FromLookup })
		l.noErr(l.Provider.Finish("ch_1"))
		l.Want(l.Rest(id, time.Hour), settle.StateSucceeded)
		_, err := q.Engine.Resolve(l.Ctx, id, settle.Decision{Actor: "ana", Reason: "saw it", Evidence: "ch_1", Fact: settle.Applied, Ref: "ch_1"})
		l.noErr(err)
		q.Stop()

		var told []string
		var last settle.Entry
		for _, x := range l.History(id) {
			told = append(told, string(x.Source)+" "+string(x.Fact))
			if x.Operation != id || x.Write == "" || x.At.IsZero() {
				t.Fatalf("entry %+v is incomplete", x)
			}
			last = x
		}
		for _, want := range []string{
			"caller ",        // registered, with its first attempt
			"reply ",         // no answer within the claim
			"reply underway", // and the answer, late
			"lookup not_found",
			"lookup underway",
			"lookup applied",
			"person applied",
		} {
			if !slices.Contains(told, want) {
				t.Errorf("%q is not in the history (I12); %s", want, l.story(id))
			}
		}
		if last.Disposition != settle.DispositionSuperseded || last.Actor != "ana" {
			t.Errorf("the last entry is %+v, want ana's, superseded", last)
		}
	})
}
