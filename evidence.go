package settle

import (
	"cmp"
	"slices"
	"time"
)

// Attempt is one request to the provider. It is open until something says how
// it ended, and quiet once it can no longer land.
type Attempt struct {
	N     int           `json:"n"`              // 1, 2, …
	Start time.Time     `json:"start,omitzero"` // AsOf of the commit before it: early is safe
	End   time.Time     `json:"end,omitzero"`   // when its live holder recorded no answer, else AsOf of the next claim: late is safe
	Fate  Fate          `json:"fate,omitempty"`
	Grace time.Duration `json:"grace"` // request deadline + settle delay (+ lookup lag): quiet = End + Grace
	Code  string        `json:"code,omitempty"`
	// Closed: a final refusal, or a person's, spoke for this attempt too. Kept beside Fate, so
	// that the attempt's own answer and the refusal may come in either order.
	Closed bool `json:"closed,omitempty"`
}

// Fate is how an attempt ended.
type Fate string

// The fates, in rank order: of two reports on one attempt the higher counts,
// so their order does not matter (I7).
const (
	FateOpen       Fate = ""            // nothing says how it ended
	FateUnderway   Fate = "underway"    // the provider accepted it and has not decided
	FateNotSent    Fate = "not_sent"    // provably never left
	FateNotApplied Fate = "not_applied" // provably without effect, not a decision on the operation
	FateRefused    Fate = "refused"     // a final refusal
	FateApplied    Fate = "applied"     // it, or the request it repeats, had the effect
)

func (f Fate) rank() int {
	return slices.Index([]Fate{FateOpen, FateUnderway, FateNotSent, FateNotApplied, FateRefused, FateApplied}, f)
}

// Ended is how a ended, what spoke for it included.
func (a Attempt) Ended() Fate {
	if a.Closed && a.Fate.rank() < FateNotSent.rank() {
		return FateRefused
	}
	return a.Fate
}

// open reports whether nothing says how a ended.
func (a Attempt) open() bool { return a.Ended() == FateOpen }

// quiet reports whether a can no longer land at now.
func (a Attempt) quiet(now time.Time) bool {
	return !a.End.IsZero() && !a.End.Add(a.Grace).After(now)
}

// harmless reports that a provably had no effect: it opens no window (I6).
func (a Attempt) harmless() bool { return a.Fate == FateNotSent || a.Fate == FateNotApplied }

// Rank is the most that was ever known about one reference.
type Rank string

// The ranks, lowest first; the pointwise maximum is kept, so a late decline
// never undoes a success.
const (
	RankKnown     Rank = ""          // seen in a report that decides nothing
	RankFailed    Rank = "failed"    // has no effect
	RankDisputed  Rank = "disputed"  // exists, and is not what was asked for
	RankSucceeded Rank = "succeeded" // exists as asked, or was accepted by a person
	RankReversed  Rank = "reversed"  // existed and came undone
)

func (r Rank) order() int {
	return slices.Index([]Rank{RankKnown, RankFailed, RankDisputed, RankSucceeded, RankReversed}, r)
}

// Reference is the provider's name for an effect as a whole, with the evidence
// about it. Ref is empty for evidence that named none: it belongs to the only
// named reference if there is exactly one, else it counts for the state by itself
// and never as a duplicate.
type Reference struct {
	Ref      string `json:"ref"`
	Rank     Rank   `json:"rank,omitempty"`
	Terms    Terms  `json:"terms,omitzero"`     // as observed with the highest rank that named any
	TermsAs  Rank   `json:"terms_as,omitempty"` // that rank; a reversal's terms count as known
	Mismatch bool   `json:"mismatch,omitempty"` // a report once differed from the stored terms
	Accepted bool   `json:"accepted,omitempty"` // a person accepted it as it is
	Foreign  bool   `json:"foreign,omitempty"`  // another operation owns the reference
	Owner    string `json:"owner,omitempty"`    // its id
}

// Progress is the latest report that decides nothing. Advice only: it sets the
// schedule and its limit, and no rule about sending, settling, canceling or
// compensating reads it.
type Progress struct {
	State      State     `json:"state"` // processing or action_required
	Action     string    `json:"action,omitempty"`
	Sequence   int64     `json:"sequence,omitempty"`
	FromLookup bool      `json:"from_lookup,omitempty"`
	Since      time.Time `json:"since,omitzero"` // first report of any progress
}

// Posting is one line of an operation's ledger: a compensation of its effect, or a foreign record.
type Posting struct {
	Operation string        `json:"operation"`     // the compensation's id; empty for a foreign record
	Kind      string        `json:"kind"`          // its kind
	Ref       string        `json:"ref,omitempty"` // the effect it undoes; empty: the only one
	Amount    Amount        `json:"amount,omitzero"`
	Status    PostingStatus `json:"status"`
	Reason    string        `json:"reason,omitempty"` // the compensation's purpose
	Whole     bool          `json:"whole,omitempty"`  // the amount follows the effect's until it is sent
	// External is the provider's reference of what undid the effect, where no operation did: see Foreign.
	External string `json:"external,omitempty"`
}

// PostingStatus is how far a compensation has come.
type PostingStatus string

// The posting statuses. Wished, open and done ones hold their amount; freed and undone ones do not (I9).
const (
	PostingWished PostingStatus = "wished" // waits for the effect to be confirmed
	PostingOpen   PostingStatus = "open"   // may be sent, or is unknown
	PostingDone   PostingStatus = "done"   // confirmed
	PostingFreed  PostingStatus = "freed"  // confirmed that nothing was undone
	PostingUndone PostingStatus = "undone" // was done and bounced: frees its amount once
)

// Source says where evidence came from.
type Source string

// The sources.
const (
	SourceReply  Source = "reply"
	SourceLookup Source = "lookup"
	SourceEvent  Source = "event"
	SourceReport Source = "report"
	SourcePerson Source = "person"
	SourceCaller Source = "caller" // control only: registering, canceling
	SourceWorker Source = "worker" // control only: claims, schedules, escalation
)

// evidence is one observation in the form in which it is merged.
type evidence struct {
	source   Source
	attempt  int       // the attempt it is the reply to; 0: none
	began    time.Time // store time at which that attempt or lookup began; zero for events
	honoured bool      // the reply came from a provider that honours keys
	keyless  bool      // the request may have left without the key that the contract honours
	at       time.Time // store time, late
	fact     Fact
	ref      string
	terms    Terms
	result   Payload
	code     string
	message  string
	action   string
	sequence int64
	inbox    *Write // the event that brought it, kept in the same step
}

// apply merges ev into the evidence of r. It is the only function that does,
// whatever the source (I7): everything it writes is a maximum, a flag that only
// rises, or (progress, texts) outside every decision. It never reads the state.
func (r *Record) apply(ev evidence) {
	own := r.attempt(ev.attempt)
	end := func(f Fate) {
		if own != nil && f.rank() > own.Fate.rank() {
			own.Fate, own.Code = f, ev.code
		}
	}
	switch ev.fact {
	case Unclear, NotFound:
		// No answer is no evidence (I4), and nobody's "not found" proves an absence.
	case NotSent:
		end(FateNotSent) // speaks for its own attempt only (T-02)
	case NotApplied:
		end(FateNotApplied)
		if ev.source == SourcePerson {
			for i := range r.Attempts {
				if a := &r.Attempts[i]; a.Fate.rank() < FateNotApplied.rank() && !a.harmless() {
					a.Fate, a.Code = FateNotApplied, ev.code
				}
			}
			r.Progress = nil
		}
	case Underway, NeedsAction:
		end(FateUnderway)
		if ev.ref != "" {
			r.raise(ev, RankKnown)
		}
		r.report(ev)
	case Declined:
		end(FateRefused)
		r.closeBy(ev)
		if ev.ref != "" || own == nil {
			r.raise(ev, RankFailed)
		}
		r.Code, r.Message = ev.code, ev.message
	case Applied:
		end(FateApplied)
		rank := RankSucceeded
		if (r.takenElsewhere(ev.ref) || !r.Terms.meets(ev.terms)) && ev.source != SourcePerson {
			rank = RankDisputed
		}
		kept := r.PrunedAt.IsZero() || !r.everConfirmed() // what was removed does not come back
		r.raise(ev, rank)
		if r.Result == nil && rank == RankSucceeded && kept {
			r.Result = ev.result
		}
	case Reversed:
		end(FateApplied) // it had the effect that came undone
		r.closeBy(ev)    // and what was quiet by then has no other (T-20)
		r.raise(ev, RankReversed)
		if ev.code != "" {
			r.Code, r.Message = ev.code, ev.message
		}
	}
}

// everConfirmed reports whether an effect of r was confirmed, undone by now or not.
func (r *Record) everConfirmed() bool {
	return slices.ContainsFunc(r.References, func(x Reference) bool { return x.Rank == RankSucceeded || x.Rank == RankReversed })
}

// cameUndone reports whether the effect of r was confirmed, and came undone by itself (T-20).
func (r *Record) cameUndone() bool { return r.State == StateFailed && r.everConfirmed() }

// takenElsewhere reports whether ref is known to belong to another operation.
func (r *Record) takenElsewhere(ref string) bool {
	return slices.ContainsFunc(r.References, func(x Reference) bool { return x.Ref == ref && x.Foreign })
}

func (r *Record) attempt(n int) *Attempt {
	for i := range r.Attempts {
		if r.Attempts[i].N == n {
			return &r.Attempts[i]
		}
	}
	return nil
}

// raise lifts the entry of ev's reference to at least rank.
func (r *Record) raise(ev evidence, rank Rank) {
	i, found := slices.BinarySearchFunc(r.References, ev.ref, func(x Reference, ref string) int { return cmp.Compare(x.Ref, ref) })
	if !found {
		r.References = slices.Insert(r.References, i, Reference{Ref: ev.ref})
	}
	e := &r.References[i]
	if rank == RankDisputed {
		e.Mismatch = true
	}
	if ev.source == SourcePerson && rank == RankSucceeded {
		e.Accepted = true
	}
	as := rank
	if rank == RankReversed {
		as = RankKnown // a reversal says nothing about what there was
	}
	e.saw(ev.terms, as)
	if rank.order() > e.Rank.order() {
		e.Rank = rank
	}
}

// saw keeps the terms that were observed with the highest rank, and of two with the same
// rank always the same ones.
func (e *Reference) saw(t Terms, as Rank) {
	if t.IsZero() {
		return
	}
	higher := as.order() - e.TermsAs.order()
	if e.Terms.IsZero() || higher > 0 || higher == 0 && t.text() < e.Terms.text() {
		e.Terms, e.TermsAs = t.clone(), as
	}
}

// report merges progress: a lookup's replaces it, otherwise the higher provider
// sequence wins, then action_required (T-09, T-34).
func (r *Record) report(ev evidence) {
	next := Progress{
		State: StateProcessing, Action: ev.action, Sequence: ev.sequence,
		FromLookup: ev.source == SourceLookup, Since: ev.at,
	}
	if ev.fact == NeedsAction {
		next.State = StateActionRequired
	}
	old := r.Progress
	if old != nil {
		next.Since = old.Since
		stale := next.Sequence < old.Sequence || next.Sequence == old.Sequence &&
			(old.FromLookup || old.State == StateActionRequired && next.State == StateProcessing)
		if !next.FromLookup && stale {
			return
		}
	}
	r.Progress = &next
}

// closeBy lets a final word, a refusal or a reversal, speak for older attempts: as the
// reply to an attempt under an honoured key, or from a lookup, it closes every attempt that
// was quiet when that attempt or lookup began. Before quiet, or from an event, it
// closes none but its own (T-03, T-04, T-38). A person's closes what is quiet, and a
// person's refusal all: Resolve refuses it before quiet.
func (r *Record) closeBy(ev evidence) {
	switch {
	case ev.source == SourcePerson:
	case ev.source == SourceLookup, ev.source == SourceReply && ev.honoured:
	default:
		return
	}
	began := ev.began
	if ev.source == SourcePerson {
		began = ev.at
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.N != ev.attempt && a.quiet(began) || ev.source == SourcePerson && ev.fact == Declined {
			a.Closed = true
		}
	}
}

// references is the view from which everything is decided: evidence without a
// reference is folded into the only named one, or, of several, into the only one that a
// compensation was made under. The folding happens on reading, so that it does not
// depend on what came first.
func (r *Record) references() []Reference {
	if len(r.References) < 2 || r.References[0].Ref != "" {
		return r.References
	}
	nameless, into := r.References[0], -1
	for i, x := range r.References[1:] {
		undone := slices.ContainsFunc(r.Ledger, func(p Posting) bool { return p.Ref == x.Ref })
		switch {
		case len(r.References) > 2 && !undone:
		case into >= 0:
			return r.References
		default:
			into = i + 1
		}
	}
	if into < 0 {
		return r.References
	}
	out := slices.Clone(r.References[1:])
	x := &out[into-1]
	if nameless.Rank.order() > x.Rank.order() {
		x.Rank = nameless.Rank
	}
	x.saw(nameless.Terms, nameless.TermsAs)
	x.Mismatch, x.Accepted, x.Foreign = x.Mismatch || nameless.Mismatch, x.Accepted || nameless.Accepted, x.Foreign || nameless.Foreign
	return out
}

// compute is the state table of docs/state-machine.md, top to bottom, first row that fits.
// It is the only place that derives a state. live: a claim on r has not ended.
func (r *Record) compute(live bool) State {
	var succeeded, covered, undone, stray, disputed, failed int
	for _, ref := range r.references() {
		switch ref.Rank {
		case RankSucceeded:
			succeeded++
			done, open := r.cover(ref)
			if done {
				undone++
			}
			if open {
				covered++
			}
			if !ref.Accepted && (r.Withdrawn != "" || r.ReplacedBy != "") {
				stray++
			}
		case RankDisputed:
			disputed++
		case RankReversed:
			if done, _ := r.cover(ref); done {
				succeeded, covered, undone = succeeded+1, covered+1, undone+1 // that it came undone is what was asked for
				break
			}
			failed++
		case RankFailed:
			failed++
		case RankKnown:
		}
	}
	var open, underway, refused int
	for _, a := range r.Attempts {
		switch a.Ended() {
		case FateOpen:
			open++
		case FateUnderway:
			underway++
		case FateRefused:
			refused++
		case FateNotSent, FateNotApplied, FateApplied:
		}
	}
	switch {
	case succeeded > 0 && undone == succeeded:
		return StateCompensated
	case succeeded > 0 && covered == succeeded:
		return StateCompensating
	case stray > 0:
		return StateReview
	case succeeded > 0:
		return StateSucceeded
	case disputed > 0:
		return StateReview
	case failed > 0 && open == 0, refused > 0 && open+underway == 0:
		// A refusal that is only the reply to another attempt says nothing about one that the
		// provider works on.
		return StateFailed
	case r.Review != nil:
		return StateReview
	case r.Progress != nil:
		return r.Progress.State
	case live && open > 0:
		return StateSubmitting
	case open > 0 || underway > 0:
		return StateUnknown
	case r.Withdrawn != "":
		return StateCanceled
	default:
		return StateCreated
	}
}

// cover reports whether ref is wholly undone by completed compensations, and
// whether it is by open and completed ones together.
func (r *Record) cover(ref Reference) (done, open bool) {
	e := r.effect(ref)
	var whole, wholeDone bool // effects without an amount are undone as a whole
	for _, p := range r.postings(ref.Ref) {
		switch p.Status {
		case PostingDone:
			whole, wholeDone = true, true
		case PostingOpen:
			whole = true
		case PostingWished, PostingFreed, PostingUndone:
		}
	}
	if e.Amount.IsZero() {
		return wholeDone, whole
	}
	return !e.Returned.less(e.Amount), whole && !sum(e.Returned, r.openAmount(ref.Ref)).less(e.Amount)
}

// anyGone reports whether one of the confirmed effects is wholly covered by compensations.
func (r *Record) anyGone() bool {
	return slices.ContainsFunc(r.references(), func(x Reference) bool {
		_, open := r.cover(x)
		return x.Rank == RankSucceeded && open
	})
}

func (r *Record) openAmount(ref string) Amount {
	var total Amount
	for _, p := range r.postings(ref) {
		if p.Status == PostingOpen {
			total = sum(total, p.Amount)
		}
	}
	return total
}

// postings lists the ledger lines about ref; a line without a reference is
// about the only effect.
func (r *Record) postings(ref string) []Posting {
	only := len(r.references()) <= 1
	var out []Posting
	for _, p := range r.Ledger {
		if p.Ref == ref || p.Ref == "" && only {
			out = append(out, p)
		}
	}
	return out
}

func (r *Record) effect(ref Reference) Effect {
	e := Effect{Operation: r.ID, Ref: ref.Ref, Confirmed: ref.Rank == RankSucceeded, Amount: ref.Terms.Amount}
	if e.Amount.IsZero() {
		e.Amount = r.Terms.Amount
	}
	for _, p := range r.postings(ref.Ref) {
		switch p.Status {
		case PostingWished, PostingOpen:
			e.Reserved = sum(e.Reserved, p.Amount)
			e.whole = e.whole || p.Amount.IsZero()
		case PostingDone:
			e.Returned = sum(e.Returned, p.Amount)
			e.whole = e.whole || p.Amount.IsZero()
		case PostingFreed, PostingUndone:
		}
	}
	return e
}

// Alarms are the anomalies that the evidence of r shows. They only ever rise,
// whatever the order of the evidence.
func (r *Record) Alarms() []string {
	var out []string
	effects := 0
	for _, ref := range r.references() {
		existed := ref.Rank == RankSucceeded || ref.Rank == RankReversed
		if existed && ref.Ref != "" {
			effects++
		}
		if ref.Mismatch {
			out = append(out, AlarmMismatch)
		}
		if ref.Foreign {
			out = append(out, AlarmForeign)
		}
		if existed && r.Withdrawn != "" {
			out = append(out, AlarmCanceled)
		}
		if existed && r.ReplacedBy != "" {
			out = append(out, AlarmReplaced)
		}
		if e := r.effect(ref); !e.Amount.IsZero() && e.Amount.less(e.Returned) {
			out = append(out, AlarmExcess)
		}
	}
	if effects > 1 {
		out = append(out, AlarmDuplicate)
	}
	for _, p := range r.Ledger {
		if p.Status == PostingUndone {
			out = append(out, AlarmUndone)
		}
		if p.External != "" {
			out = append(out, AlarmElsewhere)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The alarms.
const (
	AlarmDuplicate = "duplicate_effect"   // two effects for one operation
	AlarmMismatch  = "terms_mismatch"     // an effect is not what was asked for
	AlarmCanceled  = "effect_on_canceled" // an effect of a withdrawn operation
	AlarmReplaced  = "effect_on_replaced" // an effect of an operation that was tried again
	AlarmForeign   = "reference_taken"    // another operation owns the reference
	AlarmExcess    = "undone_more_than_was_done"
	AlarmUndone    = "undo_failed"            // a compensation that was done bounced
	AlarmElsewhere = "undone_elsewhere"       // something undid an effect that is no operation
	AlarmReversal  = "success_after_reversal" // a lookup confirms an effect that was reported as reversed
	AlarmReview    = "review"                 // a person is needed
	AlarmOverdue   = "review_overdue"         // and did not decide in time
	AlarmAside     = "consequence_aside"      // the hook failed too often
)
