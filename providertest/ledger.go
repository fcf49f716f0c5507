package providertest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kinds of objects.
const (
	KindCharge = "charge" // ids begin with ch_
	KindRefund = "refund" // re_
	KindVoid   = "void"   // vd_
)

// ObjectStatus is what became of an object.
type ObjectStatus string

// The statuses.
const (
	StatusProcessing     ObjectStatus = "processing"
	StatusActionRequired ObjectStatus = "action_required"
	StatusSucceeded      ObjectStatus = "succeeded"
	StatusFailed         ObjectStatus = "failed"
	StatusVoided         ObjectStatus = "voided"   // a charge undone by a void
	StatusReversed       ObjectStatus = "reversed" // succeeded once and came undone: a refund that bounced
)

// Object is a charge, a refund or a void.
type Object struct {
	ID          string       `json:"id"`
	Kind        string       `json:"kind"`
	Key         string       `json:"key,omitempty"`       // the idempotency key, as received
	Reference   string       `json:"reference,omitempty"` // the caller's own name for it
	Parent      string       `json:"parent,omitempty"`    // the charge of a refund or void
	Account     string       `json:"account,omitempty"`
	Amount      int64        `json:"amount"` // minor units
	Currency    string       `json:"currency,omitempty"`
	Status      ObjectStatus `json:"status"`
	FailureCode string       `json:"failure_code,omitempty"`
	Captured    bool         `json:"captured,omitempty"` // a charge that can no longer be voided
	Sequence    int64        `json:"sequence"`           // of the newest event about it
	Created     time.Time    `json:"created"`
}

// Lie is what the provider reports wrongly of an object; nil means the truth.
type Lie struct {
	Amount   *int64  `json:"amount,omitempty"`
	Currency *string `json:"currency,omitempty"`
	Account  *string `json:"account,omitempty"`
}

func (l Lie) and(o Lie) Lie {
	if o.Amount != nil {
		l.Amount = o.Amount
	}
	if o.Currency != nil {
		l.Currency = o.Currency
	}
	if o.Account != nil {
		l.Account = o.Account
	}
	return l
}

// record is an object with what only the provider knows of it.
type record struct {
	Object
	Lie    Lie  `json:"lie,omitzero"`
	Effect bool `json:"effect,omitempty"` // it succeeded at some time
	// Turns are what the clock will make of it, the earliest first.
	Turns []turn `json:"turns,omitempty"`
}

// reported is the object as the world gets to see it.
func (r record) reported() Object {
	o := r.Object
	if r.Lie.Amount != nil {
		o.Amount = *r.Lie.Amount
	}
	if r.Lie.Currency != nil {
		o.Currency = *r.Lie.Currency
	}
	if r.Lie.Account != nil {
		o.Account = *r.Lie.Account
	}
	return o
}

func (r record) open() bool {
	return r.Status == StatusProcessing || r.Status == StatusActionRequired
}

// counts says whether the object uses up its charge, or may yet.
func (r record) counts() bool {
	return r.open() || r.Status == StatusSucceeded
}

// Objects returns every object ever made, failed ones included, as it truly is.
func (p *Provider) Objects() []Object {
	return p.objects(func(record) bool { return true })
}

// Ledger returns every effect that happened, duplicates and undone ones included,
// and those in progress; only what failed without effect is left out.
func (p *Provider) Ledger() []Object {
	return p.objects(func(r record) bool { return r.Effect || r.open() })
}

// Effects counts the effects with the caller's reference: objects that succeeded
// at some time, whatever undid them later. It is the number to hold against one.
func (p *Provider) Effects(reference string) int {
	return len(p.objects(func(r record) bool { return r.Effect && r.Reference == reference }))
}

// Duplicates returns the references with more than one effect of one kind in one
// account, sorted.
func (p *Provider) Duplicates() []string {
	type id struct{ account, kind, reference string }
	n := map[id]int{}
	var out []string
	for _, o := range p.objects(func(r record) bool { return r.Effect && r.Reference != "" }) {
		k := id{o.Account, o.Kind, o.Reference}
		if n[k]++; n[k] == 2 {
			out = append(out, o.Reference)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Remaining is what is left of a charge after its refunds and voids, those in
// progress included; zero if it did not succeed.
func (p *Provider) Remaining(chargeID string) int64 {
	p.lock()
	defer p.unlock()
	return p.remaining(chargeID)
}

func (p *Provider) objects(keep func(record) bool) []Object {
	p.lock()
	defer p.unlock()
	var out []Object
	for _, id := range p.order {
		if r := p.records[id]; keep(r) {
			out = append(out, r.Object)
		}
	}
	return out
}

func (p *Provider) remaining(chargeID string) int64 {
	ch := p.records[chargeID]
	if ch.Status != StatusSucceeded {
		return 0
	}
	left := ch.Amount
	for _, r := range p.records {
		if r.Parent == chargeID && r.counts() {
			left -= r.Amount
		}
	}
	return left
}

// Finish ends a processing or action_required object as succeeded.
func (p *Provider) Finish(id string) error {
	return p.change(id, record.open, func(r *record) { r.Status, r.Effect = StatusSucceeded, true })
}

// Fail ends a processing or action_required object as failed.
func (p *Provider) Fail(id, code string) error {
	return p.change(id, record.open, func(r *record) { r.Status, r.FailureCode = StatusFailed, code })
}

// Reverse undoes a succeeded object from outside: a refund that bounces, a
// charge taken back by the bank. What a refund used up is free again.
func (p *Provider) Reverse(id string) error {
	return p.change(id, func(r record) bool { return r.Status == StatusSucceeded && r.Kind != KindVoid },
		func(r *record) { r.Status = StatusReversed })
}

// Capture makes a charge unvoidable: from now on only a refund undoes it.
func (p *Provider) Capture(chargeID string) error {
	return p.change(chargeID, func(r record) bool { return r.Kind == KindCharge && r.Status == StatusSucceeded },
		func(r *record) { r.Captured = true })
}

// Misreport replaces what is reported wrongly of an object from now on.
func (p *Provider) Misreport(id string, lie Lie) error {
	return p.change(id, func(record) bool { return true }, func(r *record) { r.Lie = lie })
}

// RefundByHand refunds a charge as a person in the provider's dashboard would,
// without key or reference.
func (p *Provider) RefundByHand(chargeID string, amount int64) (Object, error) {
	p.lock()
	defer p.unlock()
	ch := p.records[chargeID]
	req := Request{Kind: KindRefund, Parent: chargeID, Account: ch.Account, Amount: amount, Currency: ch.Currency}
	ans := p.execute(&flight{}, req, OK(), p.now())
	if ans.fault != nil {
		return Object{}, ans.fault
	}
	return ans.object, nil
}

func (p *Provider) change(id string, may func(record) bool, do func(*record)) error {
	p.lock()
	defer p.unlock()
	r, ok := p.records[id]
	if !ok {
		return fmt.Errorf("providertest: no object %q", id)
	}
	if !may(r) {
		return fmt.Errorf("providertest: object %s is a %s that is %s: not possible", id, r.Kind, r.Status)
	}
	do(&r)
	return p.commit(p.now(), nil, p.withParent(r)...)
}

// withParent adds the charge that a succeeded void has undone.
func (p *Provider) withParent(r record) []record {
	if r.Kind != KindVoid || r.Status != StatusSucceeded {
		return []record{r}
	}
	ch := p.records[r.Parent]
	ch.Status = StatusVoided
	return []record{r, ch}
}

// perform decides what a new request does, without doing it: the answer, and the
// records to commit. It stores nothing under a key when the answer is invalid.
func (p *Provider) perform(req Request, step Step, at time.Time) (ans answer, made []record) {
	switch {
	case req.prefix() == "":
		return refuse(400, CodeInvalid), nil
	case req.Kind != KindVoid && (req.Amount <= 0 || req.Currency == ""):
		return refuse(400, CodeInvalid), nil
	case step.stored != nil:
		return answer{fault: step.stored.clone()}, nil
	}
	if req.Kind != KindCharge {
		ch, ok := p.records[req.Parent]
		if !ok || ch.Kind != KindCharge || ch.Account != req.Account {
			return refuse(404, CodeNotFound), nil
		}
		if req.Kind == KindVoid {
			req.Amount, req.Currency = ch.Amount, ch.Currency
		}
		left := p.remaining(ch.ID)
		switch {
		case req.Kind == KindVoid && (ch.Status != StatusSucceeded || ch.Captured || left != ch.Amount):
			return refuse(402, CodeNotVoidable), nil
		case ch.Status != StatusSucceeded || !strings.EqualFold(ch.Currency, req.Currency):
			return refuse(402, CodeNotRefundable), nil
		case req.Amount > left:
			return refuse(402, CodeAmountExceeds), nil
		}
	}
	r := record{Lie: step.lie, Turns: turnsFrom(at, step.turns), Object: Object{
		ID: fmt.Sprintf("%s%d", req.prefix(), p.made[req.Kind]+1), Kind: req.Kind, Key: req.Key, Reference: req.Reference,
		Parent: req.Parent, Account: req.Account, Amount: req.Amount, Currency: req.Currency, Created: at,
	}}
	switch {
	case step.decline != "":
		r.Status, r.FailureCode, r.Turns = StatusFailed, step.decline, nil
		return answer{fault: &Fault{Status: 402, Code: step.decline, ObjectID: r.ID}}, []record{r}
	case step.status != "":
		r.Status = step.status
	case p.o.Async:
		r.Status = StatusProcessing
	default:
		r.Status, r.Effect = StatusSucceeded, true
	}
	return answer{}, p.withParent(r)
}

func refuse(status int, code string) answer {
	return answer{fault: &Fault{Status: status, Code: code}}
}

// commit makes records and a key durable, then current, and emits the events.
func (p *Provider) commit(at time.Time, b *binding, changed ...record) error {
	seq := p.sequence
	for i := range changed {
		seq++
		changed[i].Sequence = seq
	}
	if b != nil && len(changed) > 0 {
		b.Snapshot.Sequence = changed[0].Sequence
	}
	if err := p.save(line{Records: changed, Key: b}); err != nil {
		return err
	}
	for _, r := range changed {
		p.put(r)
		o := r.reported()
		p.emit(Event{
			ID: fmt.Sprintf("evt_%d", r.Sequence), Sequence: r.Sequence, Type: o.Kind + "." + string(o.Status), Created: at, Object: o,
		})
	}
	p.bind(b)
	return nil
}

// put makes a record current.
func (p *Provider) put(r record) {
	if _, ok := p.records[r.ID]; !ok {
		p.order = append(p.order, r.ID)
		p.made[r.Kind]++
	}
	p.records[r.ID] = r
	if delete(p.turning, r.ID); len(r.Turns) > 0 {
		p.turning[r.ID] = r.Turns[0].At
	}
	p.sequence = max(p.sequence, r.Sequence)
}
