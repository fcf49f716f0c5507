package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/settle-go/settle"
)

// check holds everything stored against the provider's ledger and against itself, at
// the end of every scenario.
func (l *Lab) check() {
	l.T.Helper()
	for r, err := range l.reader.List(context.Background(), settle.Query{}) {
		if err != nil {
			l.T.Fatal(err)
		}
		if !l.Lies {
			l.checkLedger(r)
		}
		l.checkSchedule(r)
		l.checkHistory(r)
	}
	if d := l.Provider.Duplicates(); len(d) > 0 {
		l.T.Errorf("more than one effect for %v", d)
	}
}

// checkLedger: what is settled is true.
func (l *Lab) checkLedger(r settle.Record) {
	l.T.Helper()
	n := l.Provider.Effects(r.ID)
	reversed := slices.ContainsFunc(r.References, func(x settle.Reference) bool { return x.Rank == settle.RankReversed })
	switch r.State {
	case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
		if n != 1 {
			l.T.Errorf("%s has %d effects; %s", r, n, l.story(r.ID))
		}
	case settle.StateFailed, settle.StateCanceled:
		if n != 0 && !reversed {
			l.T.Errorf("%s has %d effects; %s", r, n, l.story(r.ID))
		}
	case settle.StateCreated:
		if n != 0 {
			l.T.Errorf("%s has %d effects; %s", r, n, l.story(r.ID))
		}
	case settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
		if n > 1 {
			l.T.Errorf("%s has %d effects; %s", r, n, l.story(r.ID))
		}
	}
}

// checkSchedule: nothing is stuck (I10), and open work only is in the index of due rows.
func (l *Lab) checkSchedule(r settle.Record) {
	l.T.Helper()
	switch {
	case !r.State.Settled() && r.Due.IsZero():
		l.T.Errorf("%s is never due (I10); %s", r, l.story(r.ID))
	case r.State == settle.StateReview && (r.Review == nil || r.Review.Reason == "" || r.Review.Deadline.IsZero()):
		l.T.Errorf("%s has no reason or deadline (I10); %s", r, l.story(r.ID))
	case r.State.Settled() && r.Consequence != settle.ConsequenceDue && !r.Wake && !r.Due.IsZero():
		l.T.Errorf("%s is settled and still due; %s", r, l.story(r.ID))
	}
}

// checkHistory: one entry for every version, claims of Store.Claim excepted, and each
// starts where the last one ended (I12). A claim that begins or ends moves between
// unknown and submitting without a write.
func (l *Lab) checkHistory(r settle.Record) {
	l.T.Helper()
	var last settle.Entry
	var n int64
	writes := map[string]bool{}
	loose := []settle.State{settle.StateUnknown, settle.StateSubmitting}
	for _, x := range l.History(r.ID) {
		n++
		switch {
		case x.Seq <= last.Seq || x.Seq > r.Version:
			l.T.Errorf("%s: entry %d after %d (I12)", r, x.Seq, last.Seq)
		case x.At.Before(last.At):
			l.T.Errorf("%s: entry %d is older than the one before it (I12)", r, x.Seq)
		case x.From != last.To && !(slices.Contains(loose, x.From) && slices.Contains(loose, last.To)):
			l.T.Errorf("%s: entry %d starts from %q, the one before ended in %q (I12); %s", r, x.Seq, x.From, last.To, l.story(r.ID))
		case writes[x.Write]:
			l.T.Errorf("%s: change %s is in the history twice (I15)", r, x.Write)
		}
		writes[x.Write], last = true, x
	}
	if n+l.claims[r.ID] != r.Version {
		l.T.Errorf("%s: %d entries and %d claims (I12)", r, n, l.claims[r.ID])
	}
}

// story tells an operation's history in a few words, for messages of tests.
func (l *Lab) story(id string) string {
	var b strings.Builder
	b.WriteString("history:")
	for x, err := range l.reader.History(context.Background(), id) {
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "\n  %3d %8s %s→%s %s", x.Seq, x.At.Sub(l.Began).Truncate(1e6), x.From, x.To, x.Source)
		for _, s := range []string{string(x.Fact), string(x.Disposition), x.Ref, x.Code, x.Note, strings.Join(x.Alarms, ",")} {
			if s != "" {
				b.WriteString(" " + s)
			}
		}
		if x.Attempt > 0 {
			fmt.Fprintf(&b, " #%d", x.Attempt)
		}
	}
	for i, q := range l.Provider.Requests() {
		fmt.Fprintf(&b, "\n  request %d at %s: %s", i+1, q.At.Sub(l.Began).Truncate(1e6), q.Kind)
	}
	return b.String()
}
