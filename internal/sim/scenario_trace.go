package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// found tells what a read returned.
func (w *sceneWorld) found(r settle.Record, err error) string {
	switch {
	case w.trace == nil:
		return ""
	case errors.Is(err, settle.ErrNotFound):
		return "unknown"
	case err != nil:
		return "error"
	}
	return fmt.Sprintf("%s v%d %s%s", w.label(r.ID), r.Version, r.State, leaseOf(r))
}

// leaseOf tells who has the record.
func leaseOf(r settle.Record) string {
	switch {
	case r.Token == "":
		return ""
	case r.Claimed():
		return ", claimed"
	}
	return ", lease over"
}

// claimed tells and counts what a worker was handed.
func (w *sceneWorld) claimed(recs []settle.Record, c settle.Claim) string {
	var out []string
	for _, r := range recs {
		w.label(r.ID)
		w.mu.Lock()
		w.claims[r.ID]++
		w.mu.Unlock()
		out = append(out, fmt.Sprintf("%s v%d %s, leased for %v", w.label(r.ID), r.Version, r.State, c.Lease))
	}
	return strings.Join(out, "; ")
}

// wrote tells a commit: what it decided about each record, and until when.
func (w *sceneWorld) wrote(ch settle.Change, recs []settle.Record, err error) string {
	if err == nil {
		for i := len(recs) - 1; i >= 0; i-- { // a parent is older than its compensation
			w.label(recs[i].ID)
		}
		if x := ch.Writes[0].Entry; x.Source == settle.SourcePerson && x.Fact == settle.NotApplied {
			w.mu.Lock()
			w.cleared[recs[0].ID] = time.Now()
			w.mu.Unlock()
		}
	}
	if w.trace == nil {
		return ""
	}
	var conflict *settle.ConflictError
	var hook *settle.HookError
	switch {
	case errors.As(err, &conflict) && conflict.Index.Name == "":
		return fmt.Sprintf("conflict, %s is v%d by now", w.label(conflict.Existing.ID), conflict.Existing.Version)
	case errors.As(err, &conflict):
		return fmt.Sprintf("conflict, the %s is that of %s", conflict.Index.Name, w.label(conflict.Existing.ID))
	case errors.As(err, &hook):
		return "rolled back, the hook failed"
	case err != nil:
		return "error"
	}
	var out []string
	for i, x := range ch.Writes {
		out = append(out, w.write(x, recs[i]))
	}
	return strings.Join(out, "; and ")
}

func (w *sceneWorld) write(x settle.Write, r settle.Record) string {
	var b strings.Builder
	e := x.Entry
	w.mu.Lock()
	if l := w.labels[e.Note]; l != "" { // of an event's operation, or an operation's event
		e.Note = "of " + l
	}
	w.mu.Unlock()
	fmt.Fprintf(&b, "%s v%d ", w.label(r.ID), r.Version)
	b.WriteString(moved(e.From, e.To) + " (" + said(e) + ")")
	if e.Note == "ledger" {
		return b.String()
	}
	if s := dueOf(x, r); s != "" {
		b.WriteString(", " + s)
	}
	if r.Consequence != "" && r.State == settle.StateSucceeded {
		b.WriteString(", parcel " + string(r.Consequence))
	}
	return b.String()
}

// moved tells a transition.
func moved(from, to settle.State) string {
	if from == "" {
		return "new, " + string(to)
	}
	if from == to {
		return string(to)
	}
	return string(from) + " → " + string(to)
}

// said is what an entry of the history says.
func said(e settle.Entry) string {
	var out []string
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	switch e.Source {
	case settle.SourceReply, settle.SourceLookup, settle.SourceEvent, settle.SourcePerson:
		fact := string(e.Fact)
		if e.Fact == settle.Unclear {
			fact = strings.ReplaceAll(e.Note, "_", " ")
		}
		if e.Source == settle.SourcePerson && e.Fact == settle.Unclear {
			fact = "resume"
			if e.Code == settle.CodeAssigned || e.Code == settle.CodeRedriven {
				fact = "" // the code says it
			}
		}
		add(strings.TrimSpace(string(e.Source) + " " + fact))
	case settle.SourceCaller:
		add("caller: " + e.Note)
	case settle.SourceWorker, settle.SourceReport:
		add(e.Note)
	}
	if e.Attempt > 0 && e.Note != "attempt" {
		add(fmt.Sprintf("attempt %d", e.Attempt))
	} else if e.Attempt > 0 {
		out[len(out)-1] = strings.Replace(out[len(out)-1], "attempt", fmt.Sprintf("attempt %d", e.Attempt), 1)
	}
	add(e.Ref)
	add(e.Code)
	if e.Disposition == settle.DispositionSuperseded || e.Disposition == settle.DispositionRevived {
		add(string(e.Disposition))
	}
	for _, a := range e.Alarms {
		add("alarm " + a)
	}
	return strings.Join(out, ", ")
}

// dueOf tells the schedule. Waits are told without their random part.
func dueOf(x settle.Write, r settle.Record) string {
	switch {
	case x.DueIn == settle.Never:
		return "never due"
	case x.DueIn == settle.Keep:
		return ""
	case x.DueIn == 0:
		return "due now"
	case r.Kind == settle.RetentionKind:
		return "due later"
	case r.Token != "":
		return fmt.Sprintf("leased for %v", x.DueIn)
	}
	backoff := func(n int) time.Duration { return min(time.Second<<max(0, n-1), 5*time.Minute) }
	about := func(d time.Duration) bool { return d > 0 && x.DueIn >= d && x.DueIn <= d+d/5+1 }
	last := 0
	if len(r.Attempts) > 0 {
		last = r.Attempts[len(r.Attempts)-1].N
	}
	if d := r.RetryAt.Sub(r.AsOf); about(d) {
		return fmt.Sprintf("due when the provider asked, in about %v", d)
	}
	if d := backoff(r.HookTries); r.HookTries > 0 && r.Consequence == settle.ConsequenceDue && about(d) {
		return fmt.Sprintf("due in about %v", d)
	}
	if r.State.Settled() && about(time.Minute) {
		return "due in about 1m0s"
	}
	if d := backoff(r.Tries + 1); r.Kind == settle.EventKind && about(d) {
		return fmt.Sprintf("due in about %v", d)
	}
	for _, d := range []time.Duration{time.Hour, backoff(r.Tries), backoff(r.HookTries), backoff(last)} {
		if about(d) {
			return fmt.Sprintf("due in about %v", d)
		}
	}
	for _, a := range r.Attempts {
		if d := a.End.Add(a.Grace).Sub(r.AsOf); about(d) {
			return fmt.Sprintf("due when attempt %d is quiet, in about %v", a.N, d)
		}
	}
	return fmt.Sprintf("due in %v", x.DueIn)
}

// request tells a create request: the same key and the same body have the same names
// throughout a trace.
func (w *sceneWorld) request(r providertest.Request) string {
	if w.trace == nil {
		return ""
	}
	key := "no key"
	if r.Key != "" {
		key = w.name("key", r.Key)
	}
	text := fmt.Sprintf("%s %s, %d %s, %s", r.Kind, w.label(r.Reference), r.Amount, r.Currency, key)
	if r.Parent != "" {
		text += ", of " + r.Parent
	}
	return text
}

// name is a short name for bytes that are too long or too random to be read.
func (w *sceneWorld) name(what, bytes string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := what + " " + bytes
	if w.names == nil {
		w.names = map[string]string{}
	}
	if w.names[id] == "" {
		w.names[id] = fmt.Sprintf("%s %c", what, 'a'+len(w.names))
	}
	return w.names[id]
}

// sceneObject tells what the provider answered.
func sceneObject(o providertest.Object, err error) string {
	var f *providertest.Fault
	switch {
	case errors.As(err, &f):
		return fmt.Sprintf("%d %s", f.Status, f.Code)
	case errors.Is(err, providertest.ErrNoReply):
		return "nothing"
	case err != nil:
		return "nothing, " + err.Error()
	}
	return fmt.Sprintf("%s %s", o.ID, o.Status)
}

// verdict tells what a caller got.
func (w *sceneWorld) verdict(r settle.Record, replayed bool, err error) string {
	var out []string
	if r.ID != "" {
		out = append(out, fmt.Sprintf("%s %s", w.label(r.ID), r.State))
	}
	if replayed {
		out = append(out, "replayed")
	}
	if err == nil && r.ID == "" {
		return "done"
	}
	if err == nil {
		return "confirmed: " + strings.Join(out, ", ")
	}
	var own *settle.Error
	if !errors.As(err, &own) {
		return "error " + err.Error()
	}
	text := strings.TrimPrefix(own.Err.Error(), "settle: ")
	if own.Code != "" && !slices.Contains(out, own.Code) {
		text += ", " + own.Code
	}
	if len(own.Fields) > 0 {
		text += ", " + strings.Join(own.Fields, " ")
	}
	if len(out) > 0 {
		text += "; " + strings.Join(out, ", ")
	}
	return fmt.Sprintf("%s; next: %s", text, own.Next())
}
