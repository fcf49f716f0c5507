package settle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// said is the payload of an event of these tests: for which kind it speaks, and what it says.
type saidEvent struct {
	Kind   string
	Fact   settle.Fact
	Amount int64
}

// desk is a process whose kinds read events.
type desk struct {
	*rig.Process
	charges *settle.Executor[pt.Payment, pt.Receipt]
	refunds *settle.Executor[pt.Refund, pt.Receipt]
	r       *rig.Rig
	n       int
}

func reads[Res any](kind string) func(context.Context, settle.Event) (settle.Observation[Res], error) {
	return func(_ context.Context, ev settle.Event) (settle.Observation[Res], error) {
		var s saidEvent
		if err := json.Unmarshal(ev.Payload, &s); err != nil {
			return settle.Observation[Res]{}, err
		}
		if s.Kind != kind {
			return settle.Observation[Res]{}, settle.ErrNotForKind
		}
		return settle.Observation[Res]{Fact: s.Fact, Terms: settle.Terms{Amount: settle.Minor(s.Amount, "EUR")}}, nil
	}
}

func newDesk(t *testing.T, r *rig.Rig) *desk {
	t.Helper()
	d := &desk{Process: r.Bare(nil), r: r}
	c, u := pt.ChargeAdapter(d.API, r.Promise), pt.RefundAdapter(d.API, r.Promise)
	c.EventFunc, u.EventFunc = reads[pt.Receipt]("charge"), reads[pt.Receipt]("refund")
	var err error
	d.charges, err = settle.New(d.Engine, "charge", c, nil)
	rig.OK(t, err)
	d.refunds, err = settle.New(d.Engine, "refund", u, &settle.ExecutorOptions[pt.Refund, pt.Receipt]{Undoes: "charge"})
	rig.OK(t, err)
	return d
}

func effectOf(d *desk, id string) settle.Effect {
	r := d.r.Get(id)
	return r.Effects()[0]
}

func (d *desk) observe(t *testing.T, operation, ref, parent string, s saidEvent) settle.Observed {
	t.Helper()
	d.n++
	payload, err := json.Marshal(s)
	rig.OK(t, err)
	out, err := d.Observe(t.Context(), settle.Event{
		Account: d.r.Promise.Account.String(), ID: fmt.Sprint("evt_", d.n), Operation: operation, Ref: ref, Parent: parent, Payload: payload,
	})
	rig.OK(t, err)
	return out
}

func atDesk(t *testing.T, name string, f func(t *testing.T, d *desk)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newDesk(t, rig.New(t, memstore.New(nil), nil))) })
	})
}

// TestEventNamesWhatItUndoes: providers that hand the payment's own reference back with refunds (Adyen's merchantReference): the event of a refund
// has the charge's operation id. It is about the refund: one made elsewhere is counted, one of ours is told of.
func TestEventNamesWhatItUndoes(t *testing.T) {
	paid := func(t *testing.T, d *desk) (id, ref string) {
		out, err := d.charges.Execute(t.Context(), rig.Op("order-1", 1000, "EUR"))
		rig.OK(t, err)
		return out.ID, out.References[0].Ref
	}
	atDesk(t, "made in the dashboard", func(t *testing.T, d *desk) {
		id, ref := paid(t, d)
		if got := d.observe(t, id, "re_9", ref, saidEvent{"refund", settle.Applied, 600}); got.Parked {
			t.Error("parked")
		}
		_, err := d.refunds.Compensate(t.Context(), settle.Effect{Operation: id}, "return", pt.Refund{Amount: 600, Currency: "EUR"})
		rig.Is(t, err, settle.ErrExceeds)
		if e := effectOf(d, id); e.Returned.Value.IntPart() != 600 {
			t.Errorf("%v came back", e.Returned)
		}
	})
	atDesk(t, "before the charge is confirmed", func(t *testing.T, d *desk) {
		d.r.Provider.Script(pt.DropReply())
		d.r.Provider.ScriptLookup(pt.Status(500, ""), pt.Status(500, ""), pt.Status(500, ""))
		out, err := d.charges.Execute(t.Context(), rig.Op("order-1", 1000, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		ref := d.r.Provider.Objects()[0].ID
		d.observe(t, out.ID, "re_9", ref, saidEvent{"refund", settle.Applied, 600})
		d.Work()
		rig.After(24 * time.Hour)
		if e := effectOf(d, out.ID); e.Returned.Value.IntPart() != 600 {
			t.Errorf("%v came back", e.Returned)
		}
	})
	for _, parent := range []bool{true, false} {
		atDesk(t, fmt.Sprint("ours that bounced, says what it undoes: ", parent), func(t *testing.T, d *desk) {
			id, ref := paid(t, d)
			c, err := d.refunds.Compensate(t.Context(), settle.Effect{Operation: id}, "return", pt.Refund{})
			rig.OK(t, err)
			if !parent {
				ref = ""
			}
			d.observe(t, id, c.References[0].Ref, ref, saidEvent{"refund", settle.Reversed, 1000})
			if got := d.r.Get(c.ID); got.State != settle.StateFailed {
				t.Errorf("the refund is %s", got.State)
			}
		})
	}
	atDesk(t, "a line of a report", func(t *testing.T, d *desk) {
		id, ref := paid(t, d)
		var found []settle.Finding
		_, err := d.ReconcileReport(t.Context(), settle.ReportOf(func(yield func(settle.ReportLine, error) bool) {
			yield(settle.ReportLine{Operation: id, Ref: "re_9", Parent: ref, Terms: settle.Terms{Amount: settle.Minor(600, "EUR")}}, nil)
		}), &settle.ReportOptions{
			Account: d.r.Promise.Account.String(), Kinds: []string{"charge", "refund"},
			Found: func(_ context.Context, f settle.Finding) error { found = append(found, f); return nil },
		})
		rig.OK(t, err)
		for _, f := range found {
			if f.Kind == settle.FindingTerms {
				t.Errorf("%+v", f)
			}
		}
		if len(found) != 1 {
			t.Errorf("%d findings", len(found))
		}
	})
}

// TestKeyComesBackForAnotherIntent (I2): the key of an operation that was replaced under another key is free. Whoever takes it for another order must
// not send under the provider key of the first.
func TestKeyComesBackForAnotherIntent(t *testing.T) {
	atDesk(t, "declined, replaced", func(t *testing.T, d *desk) {
		d.r.Provider.Script(pt.Decline("stolen_card"))
		op := rig.Op("order-1", 1000, "EUR")
		op.Key = "k1"
		failed, err := d.charges.Execute(t.Context(), op)
		rig.Is(t, err, settle.ErrFailed)
		op.Key, op.Replaces = "k2", failed.ID
		_, err = d.charges.Execute(t.Context(), op)
		rig.OK(t, err)
		other := rig.Op("order-2", 5000, "EUR")
		other.Key = "k1"
		out, err := d.charges.Execute(t.Context(), other)
		rig.OK(t, err)
		if out.ProviderKey == failed.ProviderKey {
			t.Errorf("both have provider key %s", out.ProviderKey)
		}
	})
}

// TestBoundsOfTimesAndAmounts: an instant that microseconds cannot hold is refused instead of becoming another, and an amount that nobody can write out is not compared.
func TestBoundsOfTimesAndAmounts(t *testing.T) {
	atDesk(t, "instants", func(t *testing.T, d *desk) {
		for _, at := range []time.Time{time.Unix(1<<62, 0), time.Unix(-1<<40, 0), time.Time{}.Add(1), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			op := rig.Op("order-1", 1000, "EUR")
			op.SendBefore = at
			_, err := d.charges.Execute(t.Context(), op)
			rig.Is(t, err, settle.ErrInvalid)
		}
		op := rig.Op("order-1", 1000, "EUR")
		op.SendBefore = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		_, err := d.charges.Execute(t.Context(), op)
		rig.OK(t, err)
	})
	atDesk(t, "amounts", func(t *testing.T, d *desk) {
		out, err := d.charges.Execute(t.Context(), rig.Op("order-1", 1000, "EUR"))
		rig.OK(t, err)
		for _, v := range []decimal.Decimal{decimal.New(1, 1e9), decimal.New(1, -1e9), decimal.New(-7, 1<<30)} {
			_, err := d.ReconcileReport(t.Context(), settle.ReportOf(func(yield func(settle.ReportLine, error) bool) {
				yield(settle.ReportLine{Operation: out.ID, Ref: out.References[0].Ref, Terms: settle.Terms{Amount: settle.Amount{Value: v, Unit: "EUR/minor"}}}, nil)
			}), &settle.ReportOptions{Account: d.r.Promise.Account.String(), Kinds: []string{"charge"}, Found: func(context.Context, settle.Finding) error { return nil }})
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
	})
}

// TestResolveOfWhatCameUndone: a person who says that a reversed effect exists is refused, and not told that it is noted.
func TestResolveOfWhatCameUndone(t *testing.T) {
	atDesk(t, "a dispute that was won", func(t *testing.T, d *desk) {
		out, err := d.charges.Execute(t.Context(), rig.Op("order-1", 1000, "EUR"))
		rig.OK(t, err)
		ref := out.References[0].Ref
		d.observe(t, out.ID, ref, "", saidEvent{"charge", settle.Reversed, 1000})
		for _, name := range []string{"", ref} {
			_, err = d.Resolve(t.Context(), out.ID, settle.Decision{
				Actor: "ann", Reason: "the dispute was won", Evidence: "letter 7", Fact: settle.Applied, Ref: name, Terms: settle.Terms{Amount: settle.Minor(1000, "EUR")},
			})
			rig.Is(t, err, settle.ErrSettled)
		}
		if r := d.r.Get(out.ID); r.State != settle.StateFailed {
			t.Errorf("it is %s", r.State)
		}
	})
}
