package settle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

type wishShop struct {
	store    *memstore.Store
	engine   *settle.Engine
	provider *providertest.Provider
	charges  *settle.Executor[providertest.Payment, providertest.Receipt]
	refunds  *settle.Executor[providertest.Refund, providertest.Receipt]
}

func newWishShop(t *testing.T) *wishShop {
	t.Helper()
	return newWishShopAt(t, providertest.ConcurrentGuard)
}

// newWishShopAt is one whose provider treats keys in flight in this way.
func newWishShopAt(t *testing.T, concurrent providertest.Concurrent) *wishShop {
	t.Helper()
	o := providertest.Options{KeyWindow: 24 * time.Hour, Concurrent: concurrent}
	p := &wishShop{store: memstore.New(nil), provider: providertest.New(&o)}
	var err error
	if p.engine, err = settle.Open(p.store, &settle.Options{Scope: "shop"}); err != nil {
		t.Fatal(err)
	}
	if p.charges, err = settle.New(p.engine, "charge", providertest.ChargeAdapter(p.provider, providertest.Promise(&o)), nil); err != nil {
		t.Fatal(err)
	}
	p.refunds, err = settle.New(p.engine, "refund", providertest.RefundAdapter(p.provider, providertest.Promise(&o)),
		&settle.ExecutorOptions[providertest.Refund, providertest.Receipt]{Undoes: "charge"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wishedPurchase(amount int64) settle.Operation[providertest.Payment] {
	return settle.Operation[providertest.Payment]{
		Subject: "order-1", Purpose: "purchase", Request: providertest.Payment{Amount: amount, Currency: "EUR"},
	}
}

func wishedRefund(amount int64) providertest.Refund {
	return providertest.Refund{Amount: amount, Currency: "EUR"}
}

// I9: compensations that wait for an unconfirmed effect hold their amount from their
// registration on, in the parent's ledger, as those of a confirmed one do.
func TestI9_WishesReserveTheirAmount(t *testing.T) {
	p := newWishShop(t)
	p.provider.Script(providertest.DropReply())
	p.provider.ScriptLookup(providertest.Status(503, ""))
	charge, err := p.charges.Execute(t.Context(), wishedPurchase(1999))
	if !errors.Is(err, settle.ErrUnknown) {
		t.Fatal(err)
	}
	for _, wish := range []struct {
		reason string
		amount int64
		want   error
	}{{"r1", 300, settle.ErrWaiting}, {"r2", 1000, settle.ErrWaiting}, {"r3", 700, settle.ErrExceeds}} {
		_, err := p.refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID}, wish.reason, wishedRefund(wish.amount))
		if !errors.Is(err, wish.want) {
			t.Errorf("%s of %d: %v, want %v", wish.reason, wish.amount, err, wish.want)
		}
	}
	parent, err := p.engine.Get(t.Context(), charge.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(parent.Ledger) != 2 {
		t.Errorf("ledger %+v, want two wishes", parent.Ledger)
	}
}

// I9, I10: the confirmed effect is smaller than what was asked, a person accepts it, and
// the wishes together are larger. None starts that exceeds it, and the one that does not
// fit any more ends up in review or canceled: it is not claimed again for ever.
func TestI9_WishesThatExceedTheConfirmedEffect(t *testing.T) {
	p := newWishShop(t)
	p.provider.Script(providertest.WrongAmount(1500))
	charge, err := p.charges.Execute(t.Context(), wishedPurchase(1999))
	if !errors.Is(err, settle.ErrReview) {
		t.Fatal(err)
	}
	var wishes []string
	for reason, amount := range map[string]int64{"r1": 1000, "r2": 999} {
		out, err := p.refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID}, reason, wishedRefund(amount))
		if errors.Is(err, settle.ErrExceeds) {
			continue // refused at registration is as good
		}
		if !errors.Is(err, settle.ErrWaiting) {
			t.Fatal(err)
		}
		wishes = append(wishes, out.ID)
	}
	_, err = p.engine.Resolve(t.Context(), charge.ID, settle.Decision{
		Actor: "ada", Reason: "customer agrees", Evidence: "mail", Fact: settle.Applied,
		Terms: settle.Terms{Amount: settle.Minor(1500, "EUR")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range wishes {
		r, err := p.engine.Reconcile(t.Context(), id)
		if err != nil {
			t.Errorf("reconcile: %v", err)
		}
		if r.Claimed() || !r.State.Settled() && r.State != settle.StateReview {
			t.Errorf("%v, claimed %v: neither settled nor in review", r, r.Claimed())
		}
	}
	var sent int64
	for _, o := range p.provider.Ledger() {
		if o.Kind == providertest.KindRefund {
			sent += o.Amount
		}
	}
	if sent > 1500 {
		t.Errorf("%d were refunded of an effect of 1500", sent)
	}
}
