package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunSealed holds what encryption at rest and keyed fingerprints promise.
func RunSealed(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"no plaintext", noPlaintext},
		{"rotation", rotation},
		{"turned on later", turnedOnLater},
		{"a key that is gone", keyGone},
		{"a hook waits for its key", hookWaitsForKey},
		{"an event waits for its key", eventWaitsForKey},
		{"moved ciphertexts do not open", movedCiphertexts},
		{"what cannot be sealed", cannotSeal},
		{"in the application's transaction", sealedInTx},
		{"keyed fingerprints", keyedFingerprints},
		{"keyed fingerprints of events", keyedEvents},
		{"approvals and key rotation", keyedApprovals},
	})
}

func sealed(k *Keyset) *Setup { return &Setup{Options: settle.Options{Sealer: k}} }

// dump is everything that the store gives away, as it is stored.
func (l *Lab) dump() string {
	l.T.Helper()
	ctx := context.Background()
	var b strings.Builder
	for after := ""; ; {
		page, err := l.Store.List(ctx, settle.Query{After: after, Limit: 100})
		l.noErr(err)
		for _, r := range page {
			after = r.ID
			body, err := settle.EncodeRecord(r)
			l.noErr(err)
			fmt.Fprintf(&b, "%s\n%q\n%q\n", body, []byte(r.Request), []byte(r.Result))
			entries, err := l.Store.History(ctx, r.ID, 0, 1000)
			l.noErr(err)
			for _, x := range entries {
				fmt.Fprintf(&b, "%s\n", settle.EncodeEntry(x))
			}
		}
		if len(page) < 100 {
			return b.String()
		}
	}
}

// secretNote is what people write.
const secretNote = "he lives at 221B Baker Street"

// secretive has every place in which an application or a provider has secrets filled with one.
func secretive(a *settle.Adapter[Payment, Receipt]) {
	type call = func(context.Context, *settle.Call[Payment]) (settle.Observation[Receipt], error)
	tells := func(inner call) call {
		return func(ctx context.Context, c *settle.Call[Payment]) (settle.Observation[Receipt], error) {
			o, err := inner(ctx, c)
			switch o.Fact {
			case settle.Applied:
				o.Result.ID = secretResult
			case settle.Declined:
				o.Message = secretMessage
			case settle.NeedsAction:
				o.Action = secretAction
			case settle.Unclear, settle.NotSent, settle.NotApplied, settle.Underway, settle.NotFound, settle.Reversed:
			}
			return o, err
		}
	}
	a.SubmitFunc, a.LookupFunc = tells(a.SubmitFunc), tells(a.LookupFunc)
}

func secretOrder(subject string) Charge {
	op := Order()
	op.Subject, op.Request.Invoice, op.Request.Token = subject, secretPayload, secretCredential
	return op
}

// noPlaintext: execute, drift, decline, action, review, events, report, cancellation and a crash, with secrets everywhere.
func noPlaintext(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true
		w := &tape{t: l.T}
		keys := NewKeyset("k1")
		s := &Setup{
			Options: settle.Options{Observer: w, Sealer: keys, FingerprintKeys: fingerprintKeys("f1")},
			Charge: &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
				if res, ok := out.Result(); ok && res.ID != secretResult {
					return errors.New("the hook has no result")
				}
				return nil
			}},
			Adapter: secretive,
		}
		crash := *s
		left := l.crash(crash, secretOrder("order-1"), providertest.DropReply())
		p := l.Start(s).Work()
		l.Want(l.Rest(left.ID, time.Hour), settle.StateSucceeded)

		op := approved(l, p, secretOrder("order-2"), 0)
		op.Approval.Note = secretNote
		paid, err := p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		if res, ok := paid.Result(); !ok || res.ID != secretResult || paid.Approval.Note != secretNote {
			t.Fatalf("the result is %v, %v", res, ok)
		}
		drift := op
		drift.Request.Invoice += "-2"
		_, err = p.Charge.Execute(l.Ctx, drift)
		w.err(err)
		l.wantErr(err, settle.ErrMismatch)
		var own *settle.Error
		if !errors.As(err, &own) || len(own.Fields) != 1 || own.Fields[0] != "/invoice" {
			t.Fatalf("the fields that differ are %v", own.Fields)
		}
		l.Provider.Script(providertest.Decline("stolen_card"))
		declined, err := p.Charge.Execute(l.Ctx, secretOrder("order-3"))
		w.err(err)
		l.wantErr(err, settle.ErrFailed)
		l.Provider.Script(providertest.ActionRequired())
		asked, err := p.Charge.Execute(l.Ctx, secretOrder("order-4"))
		w.err(err)
		l.wantErr(err, settle.ErrActionRequired)
		l.Provider.Script(providertest.WrongAmount(1))
		disputed, err := p.Charge.Execute(l.Ctx, secretOrder("order-5"))
		w.err(err)
		l.wantErr(err, settle.ErrReview)
		_, err = p.Engine.Assign(l.Ctx, disputed.ID, settle.Assignment{Actor: "ann", Owner: "ben", Reason: secretNote})
		l.noErr(err)
		_, err = p.Engine.Resolve(l.Ctx, disputed.ID, settle.Decision{Actor: "ann", Reason: secretNote, Evidence: secretPayload, Fact: settle.Applied})
		l.noErr(err)
		l.noErr(p.Charge.Cancel(l.Ctx, secretOrder("order-6").Intent(), secretNote))
		ev := l.says(paid.ID, said{Fact: settle.Applied, Ref: paid.References[0].Ref, Message: secretMessage, Result: Receipt{ID: secretResult}})
		l.observes(p, ev, false)
		parked := l.says("", said{Fact: settle.Applied, Ref: "ch_77", Message: secretMessage, Result: Receipt{ID: secretResult}})
		got := l.observes(p, parked, true)
		l.Elapse(time.Hour)
		refund, err := refundOf(l, p, paid.ID, "returned", 300)
		l.noErr(err)
		_, err = p.Engine.RecordForeign(l.Ctx, settle.Foreign{
			Effect: settle.Effect{Operation: paid.ID}, Ref: "re_by_hand", Fact: settle.Applied, Amount: settle.Minor(1, "EUR"),
			Actor: "ann", Reason: secretNote, Evidence: secretNote,
		})
		l.noErr(err)

		stored := l.dump()
		for _, s := range []string{secretPayload, secretCredential, secretMessage, secretAction, secretResult, secretNote} {
			if i := strings.Index(stored, s); i >= 0 {
				t.Fatalf("%q is in the store: …%s", s, stored[max(0, i-300):i+len(s)])
			}
		}
		// I14: what names, binds and counts an operation can be read without a key.
		for _, s := range []string{"order-2", "ch_1", refund.ID, "EUR", "1999", `"op":"` + refund.ID, "stolen_card", "+hmac:f1"} {
			if !strings.Contains(stored, s) {
				t.Fatalf("%q is not in the store", s)
			}
		}
		// And everything comes back.
		for what, ok := range map[string]bool{
			"request": strings.Contains(string(l.by(p, paid.ID).Request), secretPayload),
			"result":  strings.Contains(string(l.by(p, paid.ID).Result), secretResult),
			"message": l.by(p, declined.ID).Message == secretMessage,
			"action":  l.by(p, asked.ID).Progress.Action == secretAction,
			"event":   strings.Contains(string(l.by(p, got.Event).Request), "ch_77"),
			"note":    l.notes(p, disputed.ID, secretNote+" — "+secretPayload),
			"reason":  l.notes(p, l.subject("order-6"), secretNote) && l.by(p, l.subject("order-6")).Withdrawn == secretNote,
		} {
			if !ok {
				t.Fatalf("the %s does not come back", what)
			}
		}
		for _, r := range l.All("charge") { // by a reader without keys
			w.print(r)
			w.err(r.Err())
			if r.Request != nil && !r.Sealed() {
				t.Fatalf("%s is not sealed", r.Subject)
			}
		}
		p.Stop()
		w.check()
	})
}

// by reads an operation as p sees it.
func (l *Lab) by(p *Process, id string) settle.Record {
	l.T.Helper()
	r, err := p.Engine.Get(l.Ctx, id)
	l.noErr(err)
	return r
}

func (l *Lab) notes(p *Process, id, want string) bool {
	l.T.Helper()
	for x, err := range p.Engine.History(l.Ctx, id) {
		l.noErr(err)
		if x.Note == want {
			return true
		}
	}
	return false
}

func (l *Lab) subject(name string) string {
	l.T.Helper()
	for _, r := range l.All("charge") {
		if r.Subject == name {
			return r.ID
		}
	}
	l.T.Fatalf("no operation of %s", name)
	return ""
}

// raw reads an operation as it is stored.
func (l *Lab) raw(id string) settle.Record {
	l.T.Helper()
	r, err := l.Store.Get(l.Ctx, settle.ByID(id))
	l.noErr(err)
	return r
}

func (l *Lab) sealedBy(id, key string) {
	l.T.Helper()
	if r := l.raw(id); !bytes.HasPrefix(r.Request, []byte("sealed:1:"+key+"/")) {
		l.T.Fatalf("the request is not sealed by %s: %q", key, []byte(r.Request[:min(len(r.Request), 16)]))
	}
}

func rotation(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		left := l.crash(*sealed(keys), Order(), providertest.DropReply())
		l.sealedBy(left.ID, "k1")
		keys.Set("k2", "k1")
		p := l.Start(sealed(keys)).Work()
		l.Want(l.Rest(left.ID, time.Hour), settle.StateSucceeded) // opened by the old key, looked up, sent again perhaps
		l.sealedBy(left.ID, "k2")                                 // and written under the new one
		keys.Set("k2")
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		if _, ok := out.Result(); !ok || out.Sealed() {
			t.Fatal("the result cannot be read under the new key")
		}
		l.Effects(left.ID, 1)
	})
}

func turnedOnLater(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		plain := l.Start(nil)
		old := l.paid(plain)
		waiting := Order()
		waiting.Subject = "order-18"
		reg, err := plain.Charge.Register(l.Ctx, waiting)
		l.noErr(err)
		keys := NewKeyset("k1")
		p := l.Start(sealed(keys))
		again, err := p.Charge.Execute(l.Ctx, Order())
		l.noErr(err)
		if res, ok := again.Result(); !ok || res.ID == "" || again.ID != old.ID {
			t.Fatalf("the former result is %v, %v", res, ok)
		}
		p.Work()
		l.Want(l.Rest(reg.ID, time.Hour), settle.StateSucceeded)
		l.sealedBy(reg.ID, "k1")
		if r := l.raw(old.ID); r.Sealed() {
			t.Fatal("it was rewritten although nothing happened")
		}
		back, err := refundOf(l, p, old.ID, "returned", 100) // writes its ledger
		l.noErr(err)
		l.sealedBy(old.ID, "k1")
		l.sealedBy(back.ID, "k1")
		changed := Order()
		changed.Request.Amount++
		_, err = p.Charge.Execute(l.Ctx, changed)
		l.wantErr(err, settle.ErrMismatch)
	})
}

// keyGone: nothing is asked or sent, nothing is lost, what can be told is told.
func keyGone(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		was := l.Start(sealed(keys))
		paid := l.paid(was)
		created := Order()
		created.Subject = "order-18"
		reg, err := was.Charge.Register(l.Ctx, created)
		l.noErr(err)
		unknown := Order()
		unknown.Subject = "order-19"
		l.Provider.Script(providertest.DropReply())
		l.Provider.ScriptLookup(providertest.Status(503, ""), providertest.Status(503, ""))
		lost, err := was.Charge.Execute(l.Ctx, unknown)
		l.wantErr(err, settle.ErrUnknown)
		ends := Order()
		ends.Subject, ends.SendBefore = "order-20", l.Began.Add(10*time.Minute)
		brief, err := was.Charge.Register(l.Ctx, ends)
		l.noErr(err)
		sent, asked := len(l.Provider.Requests()), l.Asked()

		keys.Set("k2")                                  // k1 is gone
		for _, s := range []*Setup{sealed(keys), nil} { // and in a process that has no keys at all
			p := l.Start(s)
			again, err := p.Charge.Execute(l.Ctx, Order())
			l.noErr(err) // confirmed is confirmed
			if _, ok := again.Result(); ok || !again.Sealed() || again.ID != paid.ID {
				t.Fatalf("it answers %v, sealed %v", again, again.Sealed())
			}
			changed := Order()
			changed.Request.Amount++
			_, err = p.Charge.Execute(l.Ctx, changed)
			l.wantErr(err, settle.ErrMismatch)
			out, err := p.Charge.Execute(l.Ctx, unknown)
			l.wantErr(err, settle.ErrPending)
			l.wantErr(err, settle.ErrSealed)
			if out.ID != lost.ID || out.Next == settle.NextDone {
				t.Fatalf("it answers %v, next %s", out, out.Next)
			}
		}
		p := l.Start(sealed(keys)).Work()
		l.Elapse(time.Hour)
		l.Requests(sent)
		if n := l.Asked(); n != asked {
			t.Fatalf("the provider was asked %d times without the request", n-asked)
		}
		l.Want(l.Get(brief.ID), settle.StateCanceled) // its time is over, with or without a key
		for _, id := range []string{reg.ID, lost.ID} {
			r := l.Get(id)
			l.Want(r, settle.StateReview)
			if r.Review.Reason != settle.ReasonSealed {
				t.Fatalf("it is in review for %s", r.Review.Reason)
			}
			l.sealedBy(id, "k1") // written again, and not sealed twice
		}
		keys.Set("k2", "k1")
		for _, id := range []string{reg.ID, lost.ID} {
			_, err = p.Engine.Resolve(l.Ctx, id, settle.Decision{Actor: "ann", Reason: "the key is back", Evidence: "ticket 7", Resume: true})
			l.noErr(err)
			l.Want(l.Rest(id, time.Hour), settle.StateSucceeded)
			l.Effects(id, 1)
			l.sealedBy(id, "k2")
		}
	})
}

func hookWaitsForKey(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		mended, n := false, newTally()
		s := sealed(keys)
		s.Charge = &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[Receipt]) error {
			if _, ok := out.Result(); !ok {
				t.Error("the hook is run without the result")
			}
			if !mended {
				return errBroken
			}
			n.add(out.ID)
			return nil
		}}
		p := l.Start(s)
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrConsequence)
		mended = true
		keys.Set("k2")
		p.Work()
		l.Elapse(time.Minute)
		if n.of(out.ID) != 0 {
			t.Fatal("fulfilled without the result")
		}
		keys.Set("k2", "k1")
		l.Until(out.ID, time.Hour, func(r settle.Record) bool { return r.Consequence == settle.ConsequenceDone })
		if n.of(out.ID) != 1 {
			t.Fatalf("fulfilled %d times", n.of(out.ID))
		}
	})
}

func eventWaitsForKey(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		s := sealed(keys)
		s.Promise, s.Options.OrphanAfter, s.Options.PollInterval = silent(l), time.Hour, l.poll()
		p := l.Start(s)
		got := l.observes(p, l.says("", charged("ch_1")), true)
		keys.Set("k2")
		l.Provider.Script(providertest.Processing())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrProcessing)
		p.Work()
		l.Elapse(50 * time.Minute)
		l.Want(l.Get(got.Event), settle.StateCreated)
		l.Elapse(time.Hour)
		if r := l.Get(got.Event); r.State != settle.StateReview || r.Review.Reason != settle.ReasonSealed {
			t.Fatalf("it is %v", r)
		}
		l.noErr(l.Provider.Finish("ch_1"))
		keys.Set("k2", "k1")
		l.Until(got.Event, 6*time.Hour, func(r settle.Record) bool { return r.State.Settled() })
		l.Want(l.Get(out.ID), settle.StateSucceeded)
	})
}

// movedCiphertexts: who writes to the database cannot make one operation's data another's.
func movedCiphertexts(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		p := l.Start(sealed(keys))
		a, err := p.Charge.Register(l.Ctx, Order())
		l.noErr(err)
		other := Order()
		other.Subject, other.Request.Amount = "order-18", 1
		b, err := p.Charge.Register(l.Ctx, other)
		l.noErr(err)
		moves := 0
		move := func(change func(a, b *settle.Record)) {
			moves++
			ra, rb := l.raw(a.ID), l.raw(b.ID)
			change(&ra, &rb)
			_, err := l.Store.Commit(l.Ctx, settle.Change{ID: fmt.Sprint("moved-", moves), Writes: []settle.Write{
				{Record: ra, IfVersion: ra.Version, DueIn: 0, Entry: settle.Entry{From: ra.State, To: ra.State}},
				{Record: rb, IfVersion: rb.Version, DueIn: 0, Entry: settle.Entry{From: rb.State, To: rb.State}},
			}})
			l.noErr(err)
		}
		move(func(a, b *settle.Record) { a.Request, b.Request = b.Request, a.Request })
		for _, id := range []string{a.ID, b.ID} {
			if r := l.by(p, id); !r.Sealed() {
				t.Fatalf("another operation's request opens: %q", []byte(r.Request))
			}
		}
		p.Work()
		l.Elapse(time.Minute)
		l.Requests(0)
		p.Stop()
		move(func(a, b *settle.Record) { a.Request, b.Request = b.Request, a.Request })
		move(func(a, b *settle.Record) { a.Result = a.Request })
		if r := l.by(p, a.ID); r.Request.Sealed() || !r.Result.Sealed() {
			t.Fatalf("a request opens as a result: %v, %v; %s", r.Request.Sealed(), r.Result.Sealed(), l.story(a.ID))
		}
		move(func(a, b *settle.Record) { a.Result = nil })
		move(func(a, b *settle.Record) { a.Request[len(a.Request)-1] ^= 1 })
		if r := l.by(p, a.ID); !r.Request.Sealed() {
			t.Fatal("a changed ciphertext opens")
		}
		move(func(a, b *settle.Record) { a.Request[len(a.Request)-1] ^= 1 })
		p.Work()
		for _, id := range []string{a.ID, b.ID} {
			l.Want(l.Rest(id, time.Hour), settle.StateSucceeded)
		}
	})
}

// cannotSeal: before the first request nothing is stored; after it the outcome is found out later.
func cannotSeal(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		p := l.Start(sealed(keys))
		same := l.frozen()
		keys.Fail(errBroken)
		_, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrSealed)
		l.wantErr(err, errBroken)
		_, err = p.Engine.Observe(l.Ctx, l.says("", charged("ch_1")))
		l.wantErr(err, settle.ErrSealed) // not 2xx: it comes again
		same("what cannot be sealed")
		keys.Fail(nil)
		p.Faults(Nth(OpCommit, 1, Fault{Then: func() { keys.Fail(errBroken) }}))
		out, err := p.Charge.Execute(l.Ctx, Order())
		if err == nil {
			t.Fatal("confirmed without being recorded")
		}
		l.Requests(1)
		keys.Fail(nil)
		p.Work()
		r := l.Rest(l.Only().ID, time.Hour)
		l.Want(r, settle.StateSucceeded)
		l.Effects(r.ID, 1)
		_ = out
	})
}

func sealedInTx(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		keys := NewKeyset("k1")
		s := sealed(keys)
		var p *Process
		s.Charge = &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(ctx context.Context, tx settle.Tx, out settle.Outcome[Receipt]) error {
			_, err := p.Refund.RegisterTx(ctx, tx, settle.Operation[Refund]{
				Undoes: settle.Effect{Operation: out.ID}, Purpose: "free sample", Request: Refund{Amount: 100, Currency: "EUR"},
			})
			return err
		}}
		p = l.Start(s)
		out := l.paid(p)
		child := l.All("refund")[0]
		l.sealedBy(child.ID, "k1")
		p.Work()
		l.Want(l.Rest(child.ID, time.Hour), settle.StateSucceeded)
		l.Effects(out.ID, 1)
	})
}
