package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunReports plays reports and listings of a provider against stores that open makes.
func RunReports(t *testing.T, open func(t testing.TB) settle.Store) {
	run(t, open, []scene{
		{"both directions over a window", reportBothWays},
		{"resumed after any error", reportResumes},
		{"few names at a time find the same", reportInGroups},
		{"what a line says is evidence", reportTeaches},
		{"a duplicate is found and undone once", reportDuplicate},
		{"a refund made elsewhere", reportForeign},
		{"what is near an end of the window", reportEdges},
		{"a report that loses lines", reportShrinks},
		{"lines of nobody", reportOfNobody},
	})
}

// book is a report: the provider's effects, as a settlement file lists them.
type book []settle.ReportLine

func (b book) lines(_ context.Context, from int64) iter.Seq2[settle.ReportLine, error] {
	return func(yield func(settle.ReportLine, error) bool) {
		for _, l := range b[min(int(from), len(b)):] {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func (l *Lab) line(o providertest.Object) settle.ReportLine {
	return settle.ReportLine{
		Operation: o.Reference, Ref: o.ID, Parent: o.Parent,
		Terms: settle.Terms{Account: l.Promise.Account.Account, Amount: settle.Minor(o.Amount, o.Currency)},
	}
}

// book lists what exists at the provider of one kind.
func (l *Lab) book(kind string) (out book) {
	for _, o := range l.Provider.Ledger() {
		if o.Kind == kind {
			out = append(out, l.line(o))
		}
	}
	return out
}

// finds collects findings as "kind suggestion operation reference".
type finds map[string]int

func (f finds) take(_ context.Context, x settle.Finding) error {
	f[fmt.Sprintf("%s %s %s %s", x.Kind, x.Suggest, x.Effect.Operation, x.Effect.Ref)]++
	return nil
}

func finding(kind settle.FindingKind, does settle.Suggestion, id, ref string) string {
	return fmt.Sprintf("%s %s %s %s", kind, does, id, ref)
}

// window is a day that has just ended. Its reach is that of all bubbles of the process: the times in ids never go back.
func (l *Lab) window(kind string, f finds) settle.ReportOptions {
	return settle.ReportOptions{
		Account: l.Promise.Account.String(), Kinds: []string{kind}, From: l.Began.Add(-12 * time.Hour), Until: l.Began.Add(12 * time.Hour),
		Reach: 100 * 365 * 24 * time.Hour, Found: f.take,
	}
}

func (l *Lab) reports(p *Process, b book, o settle.ReportOptions) settle.ReportSummary {
	l.T.Helper()
	sum, err := p.Engine.ReconcileReport(l.Ctx, b.lines, &o)
	l.noErr(err)
	return sum
}

func (l *Lab) found(got finds, want ...string) {
	l.T.Helper()
	want = slices.Sorted(slices.Values(want))
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		l.T.Fatalf("found\n%q, want\n%q", have, want)
	}
}

// orders pays n orders.
func (l *Lab) orders(p *Process, n int) (ids []string) {
	l.T.Helper()
	for i := range n {
		op := Order()
		op.Subject = fmt.Sprint("order-", i)
		out, err := p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		ids = append(ids, out.ID)
	}
	return ids
}

// mixed is a day with one of everything: ch_1 to ch_7 are ours. The report lacks ch_2, has ch_3 twice, states
// another amount for ch_4, another operation for ch_5 and something of nobody's.
func (l *Lab) mixed(p *Process) (ids []string, b book, want []string) {
	ids = l.orders(p, 7)
	b = l.book("charge")
	b[3].Terms.Amount = settle.Minor(1998, "EUR")
	b[4].Operation = ids[5]
	b = append(b, b[2], settle.ReportLine{Ref: "ch_99", Operation: "nobody", Terms: b[0].Terms})
	b = slices.Delete(b, 1, 2)
	return ids, b, []string{
		finding(settle.FindingAbsent, settle.SuggestLookup, ids[1], "ch_2"),
		finding(settle.FindingRepeated, settle.SuggestPerson, ids[2], "ch_3"),
		finding(settle.FindingTerms, settle.SuggestPerson, ids[3], "ch_4"),
		finding(settle.FindingConflict, settle.SuggestPerson, ids[5], "ch_5"),
		finding(settle.FindingNoOperation, settle.SuggestPerson, "", "ch_99"),
	}
}

func reportBothWays(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		ids, b, want := l.mixed(p)
		refunded, err := refundOf(l, p, ids[0], "returned", 300) // of another kind: not in this report
		l.noErr(err)
		l.At(24 * time.Hour)
		before := l.Get(ids[0]).Version
		for range 2 { // whoever reads a report again finds the same
			f := finds{}
			o := l.window("charge", f)
			o.ReadOnly = true
			sum := l.reports(p, b, o)
			l.found(f, want...)
			// ch_5 was listed under another operation, which does not hide that it was listed.
			if sum.Lines != 8 || sum.Checked != 7 || sum.Found != 5 || sum.Matched != 5 || sum.Learned+sum.Edge != 0 {
				t.Fatalf("%+v", sum)
			}
		}
		if now := l.Get(ids[0]).Version; now != before || l.Get(ids[3]).References[0].Mismatch {
			t.Fatal("a read-only pass has written")
		}
		f := finds{}
		o := l.window("charge", f)
		o.From, o.Until = time.Time{}, time.Time{} // lines only
		if sum := l.reports(p, b, o); sum.Checked != 0 || sum.Passes != 1 {
			t.Fatalf("%+v", sum)
		}
		l.found(f, want[2:]...)
		if !l.Get(ids[3]).References[0].Mismatch { // evidence, although it moves nothing
			t.Fatal("the mismatch was not merged")
		}
		l.Want(l.Get(ids[3]), settle.StateSucceeded)
		f = finds{}
		if sum := l.reports(p, l.book("refund"), l.window("refund", f)); sum.Matched != 1 || sum.Checked != 1 || sum.Passes != 1 {
			t.Fatalf("%+v", sum)
		}
		l.found(f)
		if none := l.Provider.Effects(refunded.ID); none != 1 {
			t.Fatalf("%d refunds", none)
		}
	})
}

// reportResumes: any call of the report, of Found, of Save or of the store fails once; the next process goes on from
// the position saved last, and all together find what one that never failed finds.
func reportResumes(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		ids, b, want := l.mixed(p)
		l.At(24 * time.Hour)
		for _, broken := range []string{"report", "found", "save", "store", "kill"} {
			failed := 0
			for n := 1; ; n++ {
				calls, hits, f, position := 0, 0, finds{}, []byte(nil)
				fails := func(at string) error {
					if at != broken {
						return nil
					}
					if calls++; calls == n {
						hits++
						return errBroken
					}
					return nil
				}
				o := l.window("charge", f)
				o.SaveEvery = 2
				o.Found = func(ctx context.Context, x settle.Finding) error {
					if err := fails("found"); err != nil {
						return err
					}
					return f.take(ctx, x)
				}
				o.Save = func(_ context.Context, text []byte) error {
					if err := fails("save"); err != nil {
						return err
					}
					position = text
					return nil
				}
				report := func(ctx context.Context, from int64) iter.Seq2[settle.ReportLine, error] {
					return func(yield func(settle.ReportLine, error) bool) {
						for x, err := range b.lines(ctx, from) {
							if err = errors.Join(err, fails("report")); !yield(x, err) || err != nil {
								return
							}
						}
					}
				}
				q := l.Start(nil)
				q.Faults(func(c Call) Fault {
					switch {
					case broken == "store" && fails("store") != nil:
						return Fault{Before: errBroken}
					case broken == "kill" && fails("kill") != nil:
						return Fault{Kill: true}
					}
					return Fault{}
				})
				var sum settle.ReportSummary
				var err error
				rounds := 0
				for ; rounds == 0 || err != nil && rounds < 4; rounds++ {
					o.Resume = position
					if sum, err = q.Engine.ReconcileReport(l.Ctx, report, &o); err != nil {
						q = l.Start(nil) // in another process
					}
				}
				l.noErr(err)
				l.found(f, want...)
				if sum.Lines != 8 || sum.Checked != 7 {
					t.Fatalf("%s call %d: %+v", broken, n, sum)
				}
				if hits == 0 {
					break
				}
				failed++
			}
			if failed < 3 {
				t.Fatalf("%s: %d calls failed", broken, failed)
			}
		}
		l.Want(l.Get(ids[3]), settle.StateSucceeded)
	})
}

func reportInGroups(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		_, b, want := l.mixed(p)
		l.At(24 * time.Hour)
		f := finds{}
		o := l.window("charge", f)
		o.MaxNames, o.Concurrency = 1, 1
		sum := l.reports(p, b, o)
		l.found(f, want...)
		if sum.Passes < 3 { // ch_2 and ch_3 are in different buckets
			t.Fatalf("%d passes", sum.Passes)
		}
	})
}

// reportTeaches: a lost reply is told by the report, the consequence happens once (I7, I11); what says too little is
// left to a lookup (I4).
func reportTeaches(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		ship := 0
		p := l.Start(&Setup{Charge: &settle.ExecutorOptions[Payment, Receipt]{
			OnSuccess: func(context.Context, settle.Tx, settle.Outcome[Receipt]) error { ship++; return nil },
		}})
		l.Provider.Script(providertest.DropReply())
		l.Provider.ScriptLookup(providertest.DropReply())
		out, err := p.Charge.Execute(l.Ctx, Order())
		l.wantErr(err, settle.ErrPending)
		b := l.book("charge")
		id := b[0].Operation

		f := finds{}
		o := l.window("charge", f)
		bare := book{{Operation: id, Ref: b[0].Ref}}
		l.reports(p, bare, o)
		l.found(f, finding(settle.FindingBehind, settle.SuggestLookup, id, "ch_1"))
		if got := l.Get(id); got.State.Settled() || ship != 0 {
			t.Fatalf("%v by a line without an amount", got)
		}
		for i := range 3 {
			f = finds{}
			sum := l.reports(p, b, l.window("charge", f))
			l.found(f)
			if want := int64(1 - min(i, 1)); sum.Learned != want || sum.Passes != 1 {
				t.Fatalf("%+v, want %d learned in one pass", sum, want)
			}
		}
		p.Work()
		l.Elapse(time.Minute)
		l.Want(l.Get(id), settle.StateSucceeded)
		l.Effects(id, 1)
		if again, err := p.Charge.Execute(l.Ctx, Order()); err != nil || ship != 1 || out.State.Settled() {
			t.Fatalf("%v, %v, fulfilled %d times", again, err, ship)
		}
		last := l.History(id)
		if !slices.ContainsFunc(last, func(x settle.Entry) bool {
			return x.Source == settle.SourceReport && x.Fact == settle.Applied && x.Ref == b[0].Ref
		}) {
			t.Fatalf("not in the history (I12): %s", l.story(id))
		}
	})
}

func reportDuplicate(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		l.Lies = true // the duplicate is nobody's charge at the provider
		p := l.Start(nil)
		out := l.paid(p)
		twin, err := l.Provider.Create(l.Ctx, providertest.Request{Kind: providertest.KindCharge, Key: "resent", Amount: 1999, Currency: "EUR"})
		l.noErr(err)
		b := l.book("charge")
		b[1].Operation = out.ID // as the file has it
		for range 2 {
			f, got := finds{}, settle.Finding{}
			o := l.window("charge", f)
			o.Found = func(ctx context.Context, x settle.Finding) error { got = x; return f.take(ctx, x) }
			l.reports(p, b, o)
			l.found(f, finding(settle.FindingDuplicate, settle.SuggestCompensate, out.ID, twin.ID))
			if got.Line != 1 || got.Reported.Ref != twin.ID || !got.Effect.Confirmed {
				t.Fatalf("%+v", got)
			}
			_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID, Ref: "ch_2"}, "duplicate", Refund{Amount: 99, Currency: "EUR"})
			l.noErr(err) // a part: it is still one too many
		}
		_, err = p.Refund.Compensate(l.Ctx, settle.Effect{Operation: out.ID, Ref: "ch_2"}, "duplicate, the rest", Refund{Amount: 1900, Currency: "EUR"})
		l.noErr(err)
		f := finds{}
		l.reports(p, b, l.window("charge", f))
		l.found(f)
		if one, two := l.Provider.Remaining("ch_1"), l.Provider.Remaining("ch_2"); one != 1999 || two != 0 {
			t.Fatalf("%d and %d are left", one, two)
		}
	})
}

func reportForeign(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		obj, err := l.Provider.RefundByHand("ch_1", 1500)
		l.noErr(err)
		b := l.book("refund")
		f, got := finds{}, settle.Finding{}
		o := l.window("refund", f)
		o.Found = func(ctx context.Context, x settle.Finding) error { got = x; return f.take(ctx, x) }
		l.reports(p, b, o)
		l.found(f, finding(settle.FindingNoOperation, settle.SuggestForeign, out.ID, "ch_1"))
		_, err = p.Engine.RecordForeign(l.Ctx, settle.Foreign{
			Effect: got.Effect, Ref: got.Reported.Ref, Fact: settle.Applied, Amount: got.Reported.Terms.Amount,
			Actor: "ana", Reason: "in the report", Evidence: "line 0",
		})
		l.noErr(err)
		l.left(out.ID, 499)
		f = finds{}
		if sum := l.reports(p, b, l.window("refund", f)); sum.Foreign != 1 || sum.Matched != 1 {
			t.Fatalf("%+v of %s", sum, obj.ID)
		}
		l.found(f)
	})
}

// reportEdges: what may be outside of the window is no finding, what is unsettled neither.
func reportEdges(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		ids := l.orders(p, 1)
		l.Provider.Script(providertest.DropReply())
		l.Provider.ScriptLookup(providertest.DropReply())
		op := Order()
		op.Subject = "unknown"
		_, err := p.Charge.Execute(l.Ctx, op)
		l.wantErr(err, settle.ErrPending)
		l.At(11*time.Hour + 10*time.Minute) // 50 minutes before the end
		op.Subject = "late"
		_, err = p.Charge.Execute(l.Ctx, op)
		l.noErr(err)
		l.At(36 * time.Hour)
		absent := func(from, until time.Duration, slack time.Duration) (settle.ReportSummary, finds) {
			f := finds{}
			o := l.window("charge", f)
			o.From, o.Until, o.Slack = l.Began.Add(from), l.Began.Add(until), slack
			return l.reports(p, nil, o), f
		}
		const h = time.Hour
		_, f := absent(-12*h, 12*h, 0)
		l.found(f, finding(settle.FindingAbsent, settle.SuggestLookup, ids[0], "ch_1"))
		_, f = absent(-12*h, 12*h, time.Minute)
		if len(f) != 2 {
			t.Fatalf("with little slack: %v", f)
		}
		_, f = absent(-30*time.Minute, 6*h, 0) // it began in the slack
		l.found(f)
		_, f = absent(-12*h, 30*time.Minute, time.Minute)
		l.found(f, finding(settle.FindingAbsent, settle.SuggestLookup, ids[0], "ch_1"))

		// A request in the window that is known to have had its effect only after it.
		_, err = p.Engine.Reconcile(l.Ctx, l.Matching(settle.Query{Subject: "unknown"})[0].ID)
		l.noErr(err)
		sum, f := absent(-12*h, 12*h, 0)
		l.found(f, finding(settle.FindingAbsent, settle.SuggestLookup, ids[0], "ch_1"))
		if sum.Edge != 1 || sum.Checked != 2 {
			t.Fatalf("%+v", sum)
		}
	})
}

// reportShrinks: a report that has lost lines between two readings makes nothing absent.
func reportShrinks(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		_, b, _ := l.mixed(p)
		l.At(24 * time.Hour)
		f, readings := finds{}, 0
		o := l.window("charge", f)
		_, err := p.Engine.ReconcileReport(l.Ctx, func(ctx context.Context, from int64) iter.Seq2[settle.ReportLine, error] {
			if readings++; readings > 1 {
				return b[:3].lines(ctx, from)
			}
			return b.lines(ctx, from)
		}, &o)
		l.wantErr(err, settle.ErrInvalid)
		for k := range f {
			if k[:6] == "absent" {
				t.Fatalf("found %v", f)
			}
		}
	})
}

// reportOfNobody: what is of another account or kind is nobody's, and what is no line is refused.
func reportOfNobody(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		p := l.Start(nil)
		out := l.paid(p)
		b := l.book("charge")
		for _, change := range []func(*settle.ReportOptions, *settle.ReportLine){
			func(o *settle.ReportOptions, _ *settle.ReportLine) { o.Account = "another" },
			func(o *settle.ReportOptions, _ *settle.ReportLine) { o.Kinds = []string{"refund"} },
			func(_ *settle.ReportOptions, x *settle.ReportLine) { x.Kind = "refund" },
		} {
			f, line := finds{}, b[0]
			o := l.window("charge", f)
			o.From, o.Until = time.Time{}, time.Time{}
			change(&o, &line)
			l.reports(p, book{line}, o)
			l.found(f, finding(settle.FindingNoOperation, settle.SuggestPerson, "", "ch_1"))
		}
		for _, bad := range []settle.ReportLine{{}, {Ref: "a\x00"}, {Ref: "x", Fact: settle.Declined}} {
			o := l.window("charge", finds{})
			_, err := p.Engine.ReconcileReport(l.Ctx, book{b[0], bad}.lines, &o)
			l.wantErr(err, settle.ErrInvalid)
		}
		for i, change := range []func(*settle.ReportOptions){
			func(o *settle.ReportOptions) { o.Account = "" },
			func(o *settle.ReportOptions) { o.Kinds = nil },
			func(o *settle.ReportOptions) { o.Kinds = []string{settle.EventKind} },
			func(o *settle.ReportOptions) { o.Found = nil },
			func(o *settle.ReportOptions) { o.Until = time.Time{} },
			func(o *settle.ReportOptions) { o.Until = o.From.Add(2 * time.Hour) },
			func(o *settle.ReportOptions) { o.Slack = -1 },
			func(o *settle.ReportOptions) { o.SaveEvery = -1 },
			func(o *settle.ReportOptions) { o.Resume = []byte("{}") },
		} {
			o := l.window("charge", finds{})
			change(&o)
			if _, err := p.Engine.ReconcileReport(l.Ctx, b.lines, &o); !errors.Is(err, settle.ErrInvalid) {
				t.Fatalf("option %d: %v", i, err)
			}
		}
		l.Want(l.Get(out.ID), settle.StateSucceeded)
	})
}
