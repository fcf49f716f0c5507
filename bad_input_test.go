package settle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// badNames are names that are refused everywhere, alike on all stores.
func badNames(limit int) map[string]string {
	return map[string]string{
		"over-long":       strings.Repeat("a", limit+1),
		"over-long runes": strings.Repeat("\u00e9", limit/2+1),
		"line feed":       "a\nb",
		"NUL":             "a\x00b",
		"unit separator":  "a\x1fb",
		"delete":          "a\x7f",
		"C1 control":      "a\u0085b",
		"zero width":      "a\u200bb",
		"bidi":            "a\u202eb",
		"line separator":  "a\u2028b",
		"invalid UTF-8":   "a\xffb",
		"cut UTF-8":       "a\xe2\x82",
		"surrogate":       "a\xed\xa0\x80",
		"combining mark":  "cafe\u0301",
		"leading space":   " a",
		"trailing space":  "a ",
		"no-break space":  "a\u00a0",
		"only a space":    " ",
	}
}

// One typed error each, with the field, and nothing stored.
func TestBadInput(t *testing.T) {
	t.Parallel()
	t.Run("names of an operation", func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), keyed())
		p := r.Start(nil)
		for field, f := range map[string]struct {
			limit int
			set   func(*settle.Operation[rig.Payment], string)
		}{
			"Scope":    {settle.MaxScope, func(op *settle.Operation[rig.Payment], s string) { op.Scope = s }},
			"Subject":  {settle.MaxSubject, func(op *settle.Operation[rig.Payment], s string) { op.Subject = s }},
			"Purpose":  {settle.MaxPurpose, func(op *settle.Operation[rig.Payment], s string) { op.Purpose = s }},
			"Key":      {settle.MaxKey, func(op *settle.Operation[rig.Payment], s string) { op.Key = s }},
			"Hold":     {settle.MaxHold, func(op *settle.Operation[rig.Payment], s string) { op.Hold = s }},
			"Replaces": {64, func(op *settle.Operation[rig.Payment], s string) { op.Replaces = s }},
		} {
			bad := badNames(f.limit)
			if field == "Subject" || field == "Purpose" {
				bad["empty"] = ""
			}
			for name, s := range bad {
				op := rig.Op("order-1", 100, "EUR")
				f.set(&op, s)
				out, err := p.Charges.Execute(t.Context(), op)
				own := rig.Refused(t, out, err, settle.ErrInvalid, field)
				if own.Next() != settle.NextFixRequest {
					t.Errorf("%s %s: next is %q", field, name, own.Next())
				}
				if len(s) > 3 && strings.Contains(err.Error(), s) {
					t.Errorf("%s %s: the error quotes the value (I16): %v", field, name, err)
				}
				_, err = p.Charges.Register(t.Context(), op)
				rig.Typed(t, err, settle.ErrInvalid, field)
				if field != "Scope" && field != "Subject" && field != "Purpose" {
					continue
				}
				in := op.Intent()
				_, err = p.Charges.Find(t.Context(), in)
				rig.Typed(t, err, settle.ErrInvalid, field)
				rig.Typed(t, p.Charges.Cancel(t.Context(), in, "reason"), settle.ErrInvalid, field)
			}
		}
		for _, s := range badNames(settle.MaxPurpose) {
			rig.Typed(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), s), settle.ErrInvalid, "reason")
		}
		rig.Typed(t, p.Charges.Cancel(t.Context(), rig.Intent("order-1"), ""), settle.ErrInvalid, "reason")
		nothingStored(t, r)
	})

	t.Run("requests", func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), keyed())
		p := r.Start(nil)
		type cyclic struct{ Next any }
		loop := &cyclic{}
		loop.Next = loop
		x := rig.Raw[any, any](p, "raw", nil, nil)
		for name, req := range map[string]any{
			"NaN":                  math.NaN(),
			"NaN inside":           map[string]any{"a": []float64{1, math.NaN()}},
			"infinity":             math.Inf(-1),
			"channel":              make(chan int),
			"channel inside":       struct{ C chan int }{make(chan int)},
			"function":             map[string]any{"f": func() {}},
			"complex":              complex(1, 1),
			"cycle":                loop,
			"failing marshaller":   failingJSON{},
			"panicking marshaller": panickingJSON{},
			"marshaller of no JSON": settle.Operation[jsonText]{
				Request: `{"a":`,
			}.Request,
			"repeated member":     jsonText(`{"a":1,"a":2}`),
			"invalid UTF-8":       "a\xff",
			"invalid UTF-8 name":  map[string]int{"a\xff": 1},
			"too large":           strings.Repeat("a", settle.MaxRequest),
			"keys that are equal": map[string]int{"k": 1, "K": 2},
		} {
			op := settle.Operation[any]{Subject: "order-1", Purpose: "p", Request: req}
			out, err := x.Execute(t.Context(), op)
			own := rig.Refused(t, out, err, settle.ErrInvalid)
			if len(own.Fields) == 0 {
				t.Errorf("%s: the error names no field: %v", name, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error quotes a value (I16): %v", name, err)
			}
			if _, err := x.Fingerprint(op); !errors.Is(err, settle.ErrInvalid) {
				t.Errorf("%s: the fingerprint's error is %v", name, err)
			}
		}
		for name, req := range map[string]rig.Payment{
			"no amount":       {Currency: "EUR"},
			"negative amount": {Amount: -1, Currency: "EUR"},
			"no currency":     {Amount: 1},
			"no ISO code":     {Amount: 1, Currency: "EURO"},
			"not a code":      {Amount: 1, Currency: "1€"},
		} {
			op := rig.Op("order-1", 1, "EUR")
			op.Request = req
			out, err := p.Charges.Execute(t.Context(), op)
			if errors.Is(err, settle.ErrInvalid) {
				rig.Refused(t, out, err, settle.ErrInvalid, "Terms.Amount")
				continue
			}
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
		nothingStored(t, r)
	})

	t.Run("amounts", func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), keyed())
		p := r.Bare(nil)
		amount := settle.Amount{}
		a := rig.RawAdapter[int, int](p.API, r.Promise, nil)
		a.TermsFunc = func(settle.Operation[int]) settle.Terms { return settle.Terms{Amount: amount} }
		x, err := settle.New(p.Engine, "raw", a, nil)
		rig.OK(t, err)
		for name, bad := range map[string]settle.Amount{
			"fraction of a minor unit": {Value: decimal.RequireFromString("1.5"), Unit: "EUR/minor"},
			"no unit":                  {Value: decimal.NewFromInt(1)},
			"zero":                     settle.Minor(0, "EUR"),
			"too many digits":          settle.Major(decimal.RequireFromString("0.1234567890123456789"), "EUR"),
			"huge":                     settle.Major(decimal.New(1, 40), "EUR"), // one digit and an exponent: the text has 41
		} {
			amount = bad
			out, err := x.Execute(t.Context(), settle.Operation[int]{Subject: "s", Purpose: "p"})
			if !errors.Is(err, settle.ErrInvalid) {
				t.Errorf("%s: got %v", name, err)
				continue
			}
			rig.Refused(t, out, err, settle.ErrInvalid, "Terms.Amount")
		}
		nothingStored(t, r)
	})

	t.Run("compensations", func(t *testing.T) {
		r := rig.New(t, memstore.New(nil), keyed())
		p := r.Start(nil)
		charge, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.OK(t, err)
		effect := settle.Effect{Operation: charge.ID}
		refund := func(op settle.Operation[rig.Refund]) (settle.Outcome[rig.Receipt], error) {
			return p.Refunds.Execute(t.Context(), op)
		}
		out, err := refund(settle.Operation[rig.Refund]{Subject: "order-1", Purpose: "return"}) // through plain Execute
		rig.Refused(t, out, err, settle.ErrInvalid, "Undoes")
		out, err = p.Refunds.Compensate(t.Context(), settle.Effect{}, "return", rig.Refund{})
		rig.Refused(t, out, err, settle.ErrInvalid, "Undoes")
		out, err = p.Refunds.Compensate(t.Context(), effect, "", rig.Refund{})
		rig.Refused(t, out, err, settle.ErrInvalid, "Purpose")
		out, err = refund(settle.Operation[rig.Refund]{Undoes: effect, Subject: "order-1", Purpose: "return"})
		rig.Refused(t, out, err, settle.ErrInvalid, "Subject")
		for name, ref := range badNames(settle.MaxRef) {
			out, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID, Ref: ref}, "return", rig.Refund{})
			if !errors.Is(err, settle.ErrInvalid) {
				t.Errorf("reference %s: %v", name, err)
			}
			rig.Refused(t, out, err, settle.ErrInvalid, "Undoes")
		}
		out, err = p.Refunds.Compensate(t.Context(), effect, "return", rig.Refund{Amount: 1, Currency: "USD"})
		rig.Refused(t, out, err, settle.ErrInvalid) // another unit than the effect
		out, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: charge.ID, Ref: "ch_9"}, "return", rig.Refund{})
		rig.Refused(t, out, err, settle.ErrNoEffect)
		op := rig.Op("order-1", 100, "EUR")
		op.Undoes = effect
		res, err := p.Charges.Execute(t.Context(), op) // a kind that undoes nothing
		rig.Refused(t, res, err, settle.ErrInvalid, "Undoes")
		other := rig.Raw[int, int](p, "other", nil, nil)
		booked, err := other.Execute(t.Context(), settle.Operation[int]{Subject: "s", Purpose: "p"})
		rig.OK(t, err)
		out, err = p.Refunds.Compensate(t.Context(), settle.Effect{Operation: booked.ID}, "return", rig.Refund{})
		rig.Refused(t, out, err, settle.ErrInvalid, "Undoes") // of another kind
		_, err = p.Charges.Outcome(booked.Record)
		rig.Typed(t, err, settle.ErrInvalid, "kind")
		_, err = p.Refunds.RegisterTx(t.Context(), nil, settle.Operation[rig.Refund]{Undoes: effect, Purpose: "return"})
		rig.Typed(t, err, settle.ErrInvalid, "tx")
		if n := len(r.All()); n != 2 {
			t.Errorf("%d operations, want the two that were not refused", n)
		}
		r.Ledger(2, map[string]int{charge.ID: 1, booked.ID: 1})
	})

	t.Run("scope", func(t *testing.T) {
		e, err := settle.Open(memstore.New(nil), nil)
		rig.OK(t, err)
		prov := pt.New(keyed())
		x, err := settle.New(e, "charge", pt.ChargeAdapter(prov, pt.Promise(keyed())), nil)
		rig.OK(t, err)
		out, err := x.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
		rig.Refused(t, out, err, settle.ErrInvalid, "Scope")
		if prov.Calls(pt.OpCreate) != 0 {
			t.Error("sent without a scope")
		}
	})

	t.Run("engines", func(t *testing.T) {
		_, err := settle.Open(nil, nil)
		rig.Typed(t, err, settle.ErrInvalid, "store")
		var none *memstore.Store
		_, err = settle.Open(none, nil)
		rig.Typed(t, err, settle.ErrInvalid, "store")
		for field, o := range map[string]settle.Options{
			"Options.Lease":         {Lease: time.Millisecond},
			"Options.EscalateAfter": {EscalateAfter: -1},
			"Options.ReviewWithin":  {ReviewWithin: -1},
			"Options.PollInterval":  {PollInterval: -1},
			"Options.StoreTimeout":  {StoreTimeout: -1},
			"Options.Concurrency":   {Concurrency: -1},
			"Options.Scope":         {Scope: "a\n"},
		} {
			_, err := settle.Open(memstore.New(nil), &o)
			rig.Typed(t, err, settle.ErrInvalid, field)
		}
		for _, lease := range []time.Duration{-1, 2 * time.Hour} {
			_, err := settle.Open(memstore.New(nil), &settle.Options{Lease: lease})
			rig.Typed(t, err, settle.ErrInvalid, "Options.Lease")
		}
	})
	t.Run("executors", badExecutors)
	t.Run("decisions", badDecisions)
}

func nothingStored(t *testing.T, r *rig.Rig) {
	t.Helper()
	if all := r.All(); len(all) > 0 {
		t.Errorf("stored all the same: %v", all)
	}
	r.Ledger(0, nil)
}

type (
	failingJSON   struct{}
	panickingJSON struct{}
	jsonText      string
)

func (failingJSON) MarshalJSON() ([]byte, error)   { return nil, errors.New("secret") }
func (panickingJSON) MarshalJSON() ([]byte, error) { panic("secret") }
func (j jsonText) MarshalJSON() ([]byte, error)    { return []byte(j), nil }

func badExecutors(t *testing.T) {
	type (
		adapter = settle.Adapter[rig.Payment, rig.Receipt]
		edit    func(*adapter)
	)
	good := func() adapter {
		o := keyed()
		return pt.ChargeAdapter(pt.New(o), pt.Promise(o))
	}
	open := func(t *testing.T) *settle.Engine {
		e, err := settle.Open(memstore.New(nil), nil)
		rig.OK(t, err)
		return e
	}
	for name, c := range map[string]struct {
		field string
		edit  edit
	}{
		"zero contract":              {"LookupFunc", func(a *adapter) { a.Promise = settle.Contract{} }},
		"zero contract, no lookup":   {"Contract.Account", func(a *adapter) { a.Promise, a.LookupFunc = settle.Contract{}, nil }},
		"no provider":                {"Contract.Account", func(a *adapter) { a.Promise.Account = settle.AccountFacts{Account: "a"} }},
		"no deadline":                {"Contract.Deadline", func(a *adapter) { a.Promise.Deadline = 0 }},
		"no settle delay":            {"Contract.SettleDelay", func(a *adapter) { a.Promise.SettleDelay = 0 }},
		"negative limit":             {"Contract.ProcessingLimit", func(a *adapter) { a.Promise.ProcessingLimit = -1 }},
		"eventual without lag":       {"Contract.LookupLag", func(a *adapter) { a.Promise.Lookup = settle.Eventual }},
		"negative lag":               {"Contract.LookupLag", func(a *adapter) { a.Promise.LookupLag = -1 }},
		"no such lookup":             {"Contract.Lookup", func(a *adapter) { a.Promise.Lookup = "sometimes" }},
		"negative window":            {"Contract.Keys", func(a *adapter) { a.Promise.Keys.Window = -1 }},
		"window equals its margin":   {"Contract.Keys", func(a *adapter) { a.Promise.Keys.Window = 100 * time.Second }},
		"keys too short":             {"Contract.Keys", func(a *adapter) { a.Promise.Keys.MaxLen = 8 }},
		"negative key length":        {"Contract.Keys", func(a *adapter) { a.Promise.Keys.MaxLen = -1 }},
		"digits only":                {"Contract.Keys", func(a *adapter) { a.Promise.Keys.Alphabet = "0123456789" }},
		"alphabet with a space":      {"Contract.Keys", func(a *adapter) { a.Promise.Keys.Alphabet = settle.AlphabetURL + " " }},
		"no Terms":                   {"TermsFunc", func(a *adapter) { a.TermsFunc = nil }},
		"no Submit":                  {"SubmitFunc", func(a *adapter) { a.SubmitFunc = nil }},
		"lookup promised, not there": {"LookupFunc", func(a *adapter) { a.LookupFunc = nil }},
		"lookup there, not promised": {"LookupFunc", func(a *adapter) { a.Promise.Lookup = settle.NoLookup }},
	} {
		a := good()
		c.edit(&a)
		_, err := settle.New(open(t), "charge", a, nil)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		rig.Typed(t, err, settle.ErrInvalid, c.field)
		_, err = settle.New(open(t), "charge", &a, nil) // and by pointer
		if err == nil {
			t.Errorf("%s: accepted by pointer", name)
			continue
		}
		rig.Typed(t, err, settle.ErrInvalid, c.field)
	}
	a := good()
	a.Promise.Keys.Window = 100*time.Second + 1
	_, err := settle.New(open(t), "charge", a, nil)
	rig.OK(t, err) // one more than lease + deadline + settle delay

	e := open(t)
	_, err = settle.New(e, "charge", good(), nil)
	rig.OK(t, err)
	_, err = settle.New(e, "charge", good(), nil)
	rig.Typed(t, err, settle.ErrInvalid, "kind")
	_, err = settle.New[rig.Payment, rig.Receipt](nil, "charge", good(), nil)
	rig.Typed(t, err, settle.ErrInvalid, "engine")
	_, err = settle.New[rig.Payment, rig.Receipt](e, "other", nil, nil)
	rig.Typed(t, err, settle.ErrInvalid, "adapter")
	var none *adapter
	_, err = settle.New[rig.Payment, rig.Receipt](e, "other", none, nil)
	rig.Typed(t, err, settle.ErrInvalid, "adapter")
	kinds := badNames(settle.MaxKind)
	for i, k := range []string{"", "Charge", "1charge", "-charge", "char ge", "char/ge", "chargé", "char:ge"} {
		kinds[fmt.Sprint(i)] = k
	}
	for name, kind := range kinds {
		if _, err = settle.New(e, kind, good(), nil); err == nil {
			t.Errorf("the kind %s %q was accepted", name, kind)
			continue
		}
		rig.Typed(t, err, settle.ErrInvalid, "kind")
	}
	for field, o := range map[string]settle.ExecutorOptions[rig.Payment, rig.Receipt]{
		"EscalateAfter": {EscalateAfter: -1},
		"Undoes":        {Undoes: "No Kind"},
	} {
		_, err = settle.New(e, "other", good(), &o)
		rig.Typed(t, err, settle.ErrInvalid, field)
	}
	for _, path := range []string{"", "amount", "/", "/a~2", "/a\xff", "/" + strings.Repeat("a", 300)} {
		_, err := settle.New(e, "path-"+fmt.Sprint(len(path)), good(), &settle.ExecutorOptions[rig.Payment, rig.Receipt]{Volatile: []string{path}})
		if path == "/" { // a pointer to the member with the empty name
			rig.OK(t, err)
			continue
		}
		rig.Typed(t, err, settle.ErrInvalid, "Volatile")
	}
	// A request type that cannot be stored: refused by New or by the first call.
	type holder struct {
		C chan int `json:"c"`
	}
	ca := rig.RawAdapter[holder, int](pt.New(keyed()), pt.Promise(keyed()), nil)
	if x, err := settle.New(e, "chan", ca, nil); err == nil {
		out, err := x.Execute(context.Background(), settle.Operation[holder]{Scope: "s", Subject: "s", Purpose: "p"})
		rig.Refused(t, out, err, settle.ErrInvalid)
	} else {
		rig.Typed(t, err, settle.ErrInvalid)
	}
	type oneWay struct{ When jsonText }
	wa := rig.RawAdapter[oneWay, int](pt.New(keyed()), pt.Promise(keyed()), nil)
	x, err := settle.New(e, "one-way", wa, nil)
	rig.OK(t, err)
	out, err := x.Execute(context.Background(), settle.Operation[oneWay]{Scope: "s", Subject: "s", Purpose: "p", Request: oneWay{`{"a":1}`}})
	rig.Refused(t, out, err, settle.ErrInvalid, "Request") // it does not survive being stored
}

func badDecisions(t *testing.T) {
	r := rig.New(t, memstore.New(nil), keyed())
	r.Provider.Script(pt.WrongAmount(1))
	p := r.Start(nil)
	out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
	rig.Is(t, err, settle.ErrReview)
	good := settle.Decision{Actor: "ann", Reason: "seen in the dashboard", Evidence: "ticket 7", Fact: settle.Applied}
	version := r.Get(out.ID).Version
	for name, c := range map[string]struct {
		field string
		edit  func(*settle.Decision)
	}{
		"no actor":         {"Actor", func(d *settle.Decision) { d.Actor = "" }},
		"no reason":        {"Reason", func(d *settle.Decision) { d.Reason = "" }},
		"no evidence":      {"Evidence", func(d *settle.Decision) { d.Evidence = "" }},
		"long reason":      {"Reason", func(d *settle.Decision) { d.Reason = strings.Repeat("a", 1025) }},
		"no fact":          {"Fact", func(d *settle.Decision) { d.Fact = settle.Unclear }},
		"unknown fact":     {"Fact", func(d *settle.Decision) { d.Fact = "paid" }},
		"NotSent":          {"Fact", func(d *settle.Decision) { d.Fact = settle.NotSent }},
		"Underway":         {"Fact", func(d *settle.Decision) { d.Fact = settle.Underway }},
		"NeedsAction":      {"Fact", func(d *settle.Decision) { d.Fact = settle.NeedsAction }},
		"NotFound":         {"Fact", func(d *settle.Decision) { d.Fact = settle.NotFound }},
		"resume and fact":  {"Resume", func(d *settle.Decision) { d.Resume = true }},
		"reference":        {"Ref", func(d *settle.Decision) { d.Ref = "a\n" }},
		"negative amount":  {"Terms.Amount", func(d *settle.Decision) { d.Terms.Amount = settle.Minor(-1, "EUR") }},
		"amount of a kind": {"Terms.Amount", func(d *settle.Decision) { d.Terms.Amount = settle.Minor(1, "euro") }},
		"invalid account":  {"Terms.Account", func(d *settle.Decision) { d.Terms.Account = "a\x00" }},
		"invalid term":     {"Terms.Other", func(d *settle.Decision) { d.Terms.Other = map[string]string{"a": "\xff"} }},
		"invalid in actor": {"Actor", func(d *settle.Decision) { d.Actor = "a\x00\xff" }}, // it goes into the history of every store
	} {
		d := good
		c.edit(&d)
		_, err := p.Resolve(t.Context(), out.ID, d)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		rig.Typed(t, err, settle.ErrInvalid, c.field)
	}
	if now := r.Get(out.ID); now.Version != version {
		t.Error("a refused decision changed the record")
	}
	_, err = p.Resolve(t.Context(), "no-such-id", good)
	rig.Typed(t, err, settle.ErrNotFound)
	_, err = p.Get(t.Context(), "no-such-id")
	rig.Typed(t, err, settle.ErrNotFound)
	_, err = p.Reconcile(t.Context(), "no-such-id")
	rig.Typed(t, err, settle.ErrNotFound)
	rig.Typed(t, p.Redrive(t.Context(), "no-such-id", settle.By{Actor: "ann", Reason: "mended"}), settle.ErrNotFound)
	rig.Typed(t, p.Redrive(t.Context(), out.ID, settle.By{Reason: "mended"}), settle.ErrInvalid, "Actor")
	rig.Typed(t, p.Redrive(t.Context(), out.ID, settle.By{Actor: "ann"}), settle.ErrInvalid, "Reason")
	rig.Typed(t, p.Redrive(t.Context(), out.ID, settle.By{Actor: "ann", Reason: strings.Repeat("x", 1025)}), settle.ErrInvalid, "Reason")
	_, err = p.Charges.Find(t.Context(), rig.Intent("order-2"))
	rig.Typed(t, err, settle.ErrNotFound)
	rig.Typed(t, p.Redrive(t.Context(), out.ID, settle.By{Actor: "ann", Reason: "mended"}), settle.ErrSettled)
}
