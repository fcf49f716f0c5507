package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// watch looks at a create request as it leaves: what it needs must be stored by now.
func (w *sceneWorld) watch(q providertest.Request) {
	ctx := context.Background()
	r, err := w.raw.Get(ctx, settle.ByID(q.Reference))
	switch {
	case err != nil:
		w.problem("a %s was sent that is not stored (I1)", q.Kind)
		return
	case len(r.Attempts) == 0:
		w.problem("a %s was sent without an attempt on record (I1)", q.Kind)
	case q.Key != r.ProviderKey:
		w.problem("a %s was sent under another key than the stored one (I2)", q.Kind)
	}
	if q.Kind == providertest.KindCharge {
		return
	}
	parent, err := w.raw.Get(ctx, settle.ByID(r.Undoes.Operation))
	confirmed := err == nil && slices.ContainsFunc(parent.References, func(x settle.Reference) bool {
		return x.Ref == q.Parent && x.Rank == settle.RankSucceeded
	})
	if !confirmed {
		w.problem("a %s was sent for an effect that is not confirmed, the charge is %s (I8)", q.Kind, parent.State)
	}
	if held, most := heldOf(&parent, q.Parent), parent.Terms.Amount.Value.IntPart(); held > most {
		w.problem("a %s was sent while %d of %d are reserved or undone by settle (I9)", q.Kind, held, most)
	}
}

// heldOf is how much of the effect ref settle has undone, or may have.
func heldOf(r *settle.Record, ref string) (cents int64) {
	for _, p := range r.Ledger {
		if p.External == "" && (p.Ref == ref || p.Ref == "" && len(r.References) == 1) && (p.Status == settle.PostingOpen || p.Status == settle.PostingDone) {
			cents += p.Amount.Value.IntPart()
		}
	}
	return cents
}

// caller holds what a caller was told against what is so at that moment.
func (w *sceneWorld) caller(r *settle.Record, err error) {
	if err != nil {
		w.secrets("an error", err.Error())
	}
	if r == nil || r.ID == "" {
		return
	}
	stored, gerr := w.raw.Get(context.Background(), settle.ByID(r.ID))
	effects := w.provider.Effects(r.ID)
	switch {
	case gerr != nil:
		w.problem("a caller was told about an operation that is not stored")
	case w.doubled[r.ID]:
	case err == nil && (effects != 1 || stored.State != settle.StateSucceeded):
		w.problem("a caller was told success; the charge is stored as %s and has %d effects (I4)", stored.State, effects)
	case errors.Is(err, settle.ErrFailed) && effects != 0 && stored.Next() != settle.NextShowReversal:
		w.problem("a caller was told failure; there are %d effects (I4)", effects)
	}
}

// registered: what a caller was told is stored, is.
func (w *sceneWorld) registered(id string) {
	if _, err := w.raw.Get(context.Background(), settle.ByID(id)); err != nil {
		w.problem("a caller was told that a charge is stored, and it is not")
	}
}

// secrets looks for what may not be shown.
func (w *sceneWorld) secrets(where, text string) {
	secrets := []string{secretInvoice, secretToken}
	for _, q := range w.provider.Requests() {
		if q.Key != "" {
			secrets = append(secrets, q.Key)
		}
	}
	for _, s := range secrets {
		if strings.Contains(text, s) {
			w.problem("%s shows %q (I16)", where, s)
		}
	}
}

// records lists what is stored, parcels excepted.
func (w *sceneWorld) records() []settle.Record {
	var out []settle.Record
	for r, err := range w.reader.List(context.Background(), settle.Query{}) {
		if err != nil {
			w.problem("list: %v", err)
			return nil
		}
		if r.Kind != "parcel" {
			out = append(out, r)
		}
	}
	return out
}

// atRest reports whether nothing but a person or the passing of months moves r.
func atRest(r settle.Record) bool {
	if r.State == settle.StateReview {
		return !r.Claimed()
	}
	return r.State.Settled() && r.Due.IsZero() && r.Token == ""
}

// check holds everything stored against the provider's ledger and against itself.
func (w *sceneWorld) check() {
	recs := w.records()
	byID := map[string]settle.Record{}
	for _, r := range recs {
		byID[r.ID] = r
		w.checkState(r)
		w.checkHistory(r)
		w.checkParcels(r)
	}
	w.checkRequests(byID)
	w.checkLedgers(recs, byID)
	w.checkLife(recs)
	w.checkUndos()
	if d := slices.DeleteFunc(w.provider.Duplicates(), func(id string) bool { return w.doubled[id] }); len(d) > 0 {
		w.problem("more than one effect of %s", w.label(d[0]))
	}
	w.mu.Lock()
	log := w.log.String()
	w.mu.Unlock()
	w.secrets("the log", log)
}

// checkState: what is settled is true, and nothing is stuck (I10).
func (w *sceneWorld) checkState(r settle.Record) {
	n := w.provider.Effects(r.ID)
	want := -1
	switch r.State {
	case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
		want = 1
	case settle.StateFailed, settle.StateCanceled, settle.StateCreated:
		want = 0
	case settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
	}
	if r.Next() == settle.NextShowReversal {
		want = 1 // it was done, and came undone
	}
	if (want >= 0 && n != want || n > 1) && !w.doubled[r.ID] {
		w.problem("%s is %s and has %d effects", w.label(r.ID), r.State, n)
	}
	switch {
	case !r.State.Settled() && r.Due.IsZero():
		w.problem("%s is %s and never due (I10)", w.label(r.ID), r.State)
	case r.State == settle.StateReview && (r.Review == nil || r.Review.Reason == "" || r.Review.Deadline.IsZero()):
		w.problem("%s is in review without reason or deadline (I10)", w.label(r.ID))
	case !atRest(r):
		w.problem("%s is still %s (%s) when recovery ends (I10)", w.label(r.ID), r.State, r.Consequence)
	case !slices.Contains(w.scene.always[r.Kind], r.State):
		w.problem("%s, a %s, ends %s, want %v", w.label(r.ID), r.Kind, r.State, w.scene.always[r.Kind])
	}
}

// checkHistory: one entry for each version but the claims', each starting where the last one
// ended, no change twice (I12, I15).
func (w *sceneWorld) checkHistory(r settle.Record) {
	var last settle.Entry
	var n int64
	writes := map[string]bool{}
	replies := map[string]bool{}
	loose := []settle.State{settle.StateUnknown, settle.StateSubmitting}
	for x, err := range w.reader.History(context.Background(), r.ID) {
		if err != nil {
			w.problem("history: %v", err)
			return
		}
		n++
		switch {
		case x.Seq <= last.Seq || x.Seq > r.Version || x.At.Before(last.At):
			w.problem("%s: entry %d after %d (I12)", w.label(r.ID), x.Seq, last.Seq)
		case x.From != last.To && (!slices.Contains(loose, x.From) || !slices.Contains(loose, last.To)):
			w.problem("%s: entry %d starts from %q, the one before ended in %q (I12)", w.label(r.ID), x.Seq, x.From, last.To)
		case writes[x.Write]:
			w.problem("%s: one change is in the history twice (I15)", w.label(r.ID))
		}
		if reply := fmt.Sprint(x.Attempt, x.Fact); x.Source == settle.SourceReply {
			if replies[reply] {
				w.problem("%s: the answer of attempt %d is recorded twice (I15)", w.label(r.ID), x.Attempt)
			}
			replies[reply] = true
		}
		writes[x.Write], last = true, x
	}
	if claims := w.claims[r.ID]; n+claims != r.Version {
		w.problem("%s: version %d, %d entries, %d claims (I12)", w.label(r.ID), r.Version, n, claims)
	}
}

// checkParcels: the hook's writes are there once if it is done, else not at all (I11).
func (w *sceneWorld) checkParcels(r settle.Record) {
	if r.Kind != "charge" {
		return
	}
	n, err := w.countParcels(r.ID)
	want := 0
	if r.Consequence == settle.ConsequenceDone {
		want = 1
	}
	if err != nil || n != want {
		w.problem("%s: the consequence is %q and %d parcels are stored (I11)", w.label(r.ID), r.Consequence, n)
	}
	if w.scene.hook && r.State == settle.StateSucceeded && n == 0 {
		w.problem("%s succeeded and no parcel is stored (I11)", w.label(r.ID))
	}
}

// checkRequests: every request of an operation is the same bytes under the same key (I2),
// and none comes when it could have a second effect (I6).
func (w *sceneWorld) checkRequests(byID map[string]settle.Record) {
	w.mu.Lock()
	answers := slices.Clone(w.answers)
	w.mu.Unlock()
	reqs := map[string][]providertest.Request{}
	for _, q := range w.provider.Requests() {
		if q.Key == sceneBypass {
			continue
		}
		reqs[q.Reference] = append(reqs[q.Reference], q)
		if _, ok := byID[q.Reference]; !ok {
			w.problem("a %s was sent and is not stored (I1)", q.Kind)
		}
	}
	for id, qs := range reqs {
		for _, q := range qs[1:] {
			if q.Key != qs[0].Key || !bytes.Equal(q.Body, qs[0].Body) || q.Account != qs[0].Account {
				w.problem("%s: two requests differ (I2)", w.label(id))
				break
			}
		}
	}
	c := w.scene.promise
	spent := c.Deadline + c.SettleDelay // after its start a request cannot land any more
	first := map[string]time.Time{}     // that may have left
	last := map[string]time.Time{}
	slices.SortStableFunc(answers, func(a, b sceneAnswer) int { return a.at.Compare(b.at) })
	for _, a := range answers {
		id := a.req.Reference
		if f, ok := first[id]; ok {
			switch {
			case c.Keys.Window == 0:
				w.problem("%s: sent again, and no key guards it (I6)", w.label(id))
			case c.Keys.Window != settle.Forever && a.at.Add(spent).After(f.Add(c.Keys.Window)):
				w.problem("%s: sent again %v after the first request, past the key window (I6)", w.label(id), a.at.Sub(f))
			case !c.Keys.ConcurrentSafe && a.at.Before(last[id].Add(spent)):
				w.problem("%s: sent again %v after a request that may still land (I6)", w.label(id), a.at.Sub(last[id]))
			}
		}
		if at, ok := w.cleared[id]; !a.harmless && (!ok || a.at.After(at)) {
			if first[id].IsZero() {
				first[id] = a.at
			}
			last[id] = a.at
		}
	}
}

// checkLedgers: nothing is undone that is not confirmed, nor more than it (I8, I9), and both
// sides of the books agree.
func (w *sceneWorld) checkLedgers(recs []settle.Record, byID map[string]settle.Record) {
	for _, o := range w.provider.Ledger() {
		if o.Kind == providertest.KindCharge && w.provider.Remaining(o.ID) < 0 {
			w.problem("more of %s was refunded than charged (I9)", o.ID)
		}
	}
	for _, r := range recs {
		if r.Undoes.Operation == "" {
			continue
		}
		parent := byID[r.Undoes.Operation]
		status := settle.PostingStatus("missing")
		for _, p := range parent.Ledger {
			if p.Operation == r.ID {
				status = p.Status
			}
		}
		var want []settle.PostingStatus
		switch r.State {
		case settle.StateSucceeded, settle.StateCompensating, settle.StateCompensated:
			want = []settle.PostingStatus{settle.PostingDone}
		case settle.StateFailed, settle.StateCanceled:
			want = []settle.PostingStatus{settle.PostingFreed}
			if r.Next() == settle.NextShowReversal {
				want = []settle.PostingStatus{settle.PostingUndone}
			}
		case settle.StateCreated, settle.StateSubmitting, settle.StateUnknown, settle.StateProcessing, settle.StateActionRequired, settle.StateReview:
			want = []settle.PostingStatus{settle.PostingOpen, settle.PostingWished}
		}
		if !slices.Contains(want, status) {
			w.problem("%s is %s and its line in the ledger of %s is %s", w.label(r.ID), r.State, w.label(parent.ID), status)
		}
		if r.State == settle.StateFailed && r.Code == providertest.CodeAmountExceeds && !w.elsewhere() {
			w.problem("%s asked the provider for more than is left (I9)", w.label(r.ID))
		}
	}
}

// elsewhere reports whether somebody refunded past settle, which settle learns of too late perhaps.
func (w *sceneWorld) elsewhere() bool {
	return slices.ContainsFunc(w.provider.Ledger(), func(o providertest.Object) bool { return o.Kind == providertest.KindRefund && o.Reference == "" })
}

// story tells what is stored and what the provider saw, for messages.
func (w *sceneWorld) story() string {
	var b strings.Builder
	for _, r := range w.records() {
		fmt.Fprintf(&b, "\n  %s %s %s v%d", w.label(r.ID), r.Kind, r.State, r.Version)
		for x, err := range w.reader.History(context.Background(), r.ID) {
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&b, "\n    %3d %8s %s → %s (%s)", x.Seq, x.At.Sub(w.began).Truncate(time.Millisecond), x.From, x.To, said(x))
		}
	}
	for _, q := range w.provider.Requests() {
		fmt.Fprintf(&b, "\n  request of %s at %s: %s", w.label(q.Reference), q.At.Sub(w.began).Truncate(time.Millisecond), q.Kind)
	}
	return b.String()
}
