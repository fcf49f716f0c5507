package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// RunLedgerModel plays random charges, refunds in parts, voids, refunds made elsewhere, events that come late,
// twice, shuffled or not until the end, refunds that bounce, and processes that die at any call. After every step
// I7 to I9 and I11 hold against the provider's ledger, and I8 and I9 whenever a refund or void arrives
// there. The seed repeats a run but for the jitter of schedules; a failure prints every step.
func RunLedgerModel(t *testing.T, open Open, seed uint64, runs, steps int) {
	for i := range runs {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Logf("seed %d, %d steps", seed, steps)
			Play(t, open, &providertest.Options{KeyWindow: 24 * time.Hour}, func(t *testing.T, l *Lab) {
				l.Lies = true // not lies: reversals and voids, which the model judges by itself
				m := &ledgerModel{Lab: l, rng: rand.New(rand.NewPCG(seed, 1))}
				m.fresh()
				for n := range steps {
					m.step(n)
				}
				m.finish()
			})
		})
	}
}

type ledgerModel struct {
	*Lab
	rng    *rand.Rand
	p      *Process
	orders int
	asks   int
	seen   int            // events of the provider that were taken up so far
	late   []settle.Event // and not delivered yet
	told   []settle.Event // delivered
	log    []string

	guard sync.Mutex
	ships int
}

func (m *ledgerModel) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%10s ", time.Since(m.Began).Truncate(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (m *ledgerModel) fail(format string, args ...any) {
	m.T.Helper()
	m.T.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.log, "\n"))
}

// fresh starts a process, with a worker and a hook that stores a parcel of its own for each run that commits.
func (m *ledgerModel) fresh() {
	var parcel *settle.Executor[Payment, Receipt]
	p := m.Start(&Setup{
		Options: settle.Options{PollInterval: 5 * time.Second},
		API:     func(inner providertest.API) providertest.API { return gatekeeper{inner, m} },
		Charge: &settle.ExecutorOptions[Payment, Receipt]{OnSuccess: func(ctx context.Context, tx settle.Tx, out settle.Outcome[Receipt]) error {
			m.guard.Lock()
			m.ships++
			n := m.ships
			m.guard.Unlock()
			_, err := parcel.RegisterTx(ctx, tx, settle.Operation[Payment]{
				Scope: out.Scope, Subject: out.Subject, Purpose: fmt.Sprint("ship ", n), Request: Payment{Amount: 1, Currency: "EUR"},
			})
			return err
		}},
	})
	e, err := settle.Open(p.f.store(m.Lab), nil) // its worker does not run: parcels only ever are stored
	m.noErr(err)
	parcel, err = settle.New(e, "parcel", providertest.ChargeAdapter(p.API, m.Promise), nil)
	m.noErr(err)
	m.p = p.Work()
}

// gatekeeper stands at the provider's door: I8 and I9 hold at the moment at which a request arrives.
type gatekeeper struct {
	providertest.API
	m *ledgerModel
}

// Create implements providertest.API.
func (g gatekeeper) Create(ctx context.Context, r providertest.Request) (providertest.Object, error) {
	if r.Kind != providertest.KindCharge {
		g.judge(r)
	}
	return g.API.Create(ctx, r)
}

func (g gatekeeper) judge(r providertest.Request) {
	child, err := g.m.reader.Get(context.Background(), r.Reference)
	if err != nil {
		g.m.T.Errorf("%s %s was sent and is not stored: %v (I1)", r.Kind, r.Reference, err)
		return
	}
	parent, err := g.m.reader.Get(context.Background(), child.Undoes.Operation)
	if err != nil {
		g.m.T.Errorf("%s: %v", r.Kind, err)
		return
	}
	confirmed := slices.ContainsFunc(parent.References, func(x settle.Reference) bool {
		return x.Ref == r.Parent && x.Rank == settle.RankSucceeded
	})
	if !confirmed || g.m.Provider.Effects(parent.ID) != 1 {
		g.m.T.Errorf("%s %s was sent for %v, which is not confirmed (I8)", r.Kind, r.Reference, parent)
	}
	var total, own int64
	for _, p := range parent.Ledger {
		if p.Status == settle.PostingOpen || p.Status == settle.PostingDone {
			total += p.Amount.Value.IntPart()
		}
		if p.Operation == child.ID && p.Status == settle.PostingOpen {
			own = p.Amount.Value.IntPart()
		}
	}
	if limit := parent.Terms.Amount.Value.IntPart(); total > limit || own < r.Amount || own == 0 {
		g.m.T.Errorf("%s of %d was sent: %d of %d are reserved, %d for it; %+v (I9)", r.Kind, r.Amount, total, limit, own, parent.Ledger)
	}
}

func pick[T any](rng *rand.Rand, xs ...T) T { return xs[rng.IntN(len(xs))] }

// step does one thing, and then everything that follows at once.
func (m *ledgerModel) step(n int) {
	charges := m.All("charge")
	var r settle.Record
	if len(charges) > 0 {
		r = pick(m.rng, charges...)
	}
	what := m.rng.IntN(12)
	if m.rng.IntN(6) == 0 {
		m.doom()
	}
	switch {
	case len(charges) == 0 || what == 0:
		m.orders++
		op := Order()
		op.Subject, op.Request.Amount = fmt.Sprint("order-", m.orders), 1+m.rng.Int64N(1000)
		m.script()
		m.try(func(ctx context.Context) error { _, err := m.p.Charge.Execute(ctx, op); return err }, "charge %s of %d", op.Subject, op.Request.Amount)
	case what <= 4:
		amount := r.Terms.Amount.Value.IntPart()
		cents := pick(m.rng, 0, amount, 1+m.rng.Int64N(amount), 1+m.rng.Int64N(amount))
		m.undo("refund", r, cents)
	case what == 5:
		m.undo("void", r, 0)
	case what == 6:
		m.undo("either", r, 0)
	case what == 7 && m.Provider.Remaining(ref(r)) > 0:
		obj, err := m.Provider.RefundByHand(ref(r), 1+m.rng.Int64N(m.Provider.Remaining(ref(r))))
		m.say("refund by hand of %d of %s: %v", obj.Amount, r.Subject, err)
	case what == 8:
		m.turn()
	case what == 9:
		if ref(r) != "" && m.Provider.Capture(ref(r)) == nil {
			m.say("capture of %s", r.Subject)
		}
	default:
		m.Elapse(time.Duration(m.rng.Int64N(int64(pick(m.rng, time.Second, time.Minute, time.Hour)))))
	}
	m.deliver(false)
	synctest.Wait()
	if m.p.f.gone() {
		m.say("the process is gone")
		m.p.Kill()
		m.fresh()
	}
	m.p.Faults(nil)
	m.judge(n)
}

func ref(r settle.Record) string {
	for _, x := range r.References {
		if x.Rank == settle.RankSucceeded {
			return x.Ref
		}
	}
	return ""
}

// doom has the process die at one of its next calls.
func (m *ledgerModel) doom() {
	left, after := m.rng.IntN(12), m.rng.IntN(2) == 0
	m.p.Faults(func(Call) Fault {
		if left--; left != 0 {
			return Fault{}
		}
		x := Fault{Kill: true}
		if after {
			x.After = errGone
		}
		return x
	})
}

// script decides what becomes of the next request.
func (m *ledgerModel) script() {
	if m.rng.IntN(2) == 0 {
		return
	}
	m.Provider.Script(pick(m.rng, providertest.DropReply(), providertest.DropRequest(), providertest.Processing(), providertest.Decline("no"), providertest.StatusAfter(500, "internal")))
	if m.rng.IntN(2) == 0 {
		m.Provider.ScriptLookup(providertest.Status(503, ""))
	}
}

func (m *ledgerModel) try(f func(context.Context) error, format string, args ...any) {
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() { done <- f(ctx) }()
	m.say("%s: %v", fmt.Sprintf(format, args...), <-done)
}

// undo asks for a refund or a void, for a reason that was used before or for a new one.
func (m *ledgerModel) undo(kind string, r settle.Record, cents int64) {
	m.asks++
	reason, effect := fmt.Sprint("reason ", m.rng.IntN(m.asks+1)), settle.Effect{Operation: r.ID, Ref: pick(m.rng, "", ref(r))}
	m.script()
	m.try(func(ctx context.Context) error {
		var err error
		switch req := (Refund{Amount: cents, Currency: "EUR"}); kind {
		case "refund":
			if cents == 0 {
				req = Refund{}
			}
			_, err = m.p.Refund.Compensate(ctx, effect, reason, req)
		case "void":
			_, err = m.p.Void.Compensate(ctx, effect, reason, providertest.Void{})
		default:
			_, err = m.p.Charge.Undo(ctx, effect, reason, func(now said) string {
				return map[bool]string{true: "void", false: "refund"}[!now.Result.Captured]
			}, m.p.Void.Way(providertest.Void{}), m.p.Refund.Way(Refund{}))
		}
		return err
	}, "%s of %d of %s for %s", kind, cents, r.Subject, reason)
}

// turn decides what the provider had not decided, or takes a refund back.
func (m *ledgerModel) turn() {
	objs := m.Provider.Objects()
	if len(objs) == 0 {
		return
	}
	switch o := pick(m.rng, objs...); {
	case o.Status == providertest.StatusProcessing:
		if m.rng.IntN(2) == 0 {
			m.say("finish %s: %v", o.ID, m.Provider.Finish(o.ID))
		} else {
			m.say("fail %s: %v", o.ID, m.Provider.Fail(o.ID, "no"))
		}
	case o.Status == providertest.StatusSucceeded && o.Kind == providertest.KindRefund:
		m.say("%s bounces: %v", o.ID, m.Provider.Reverse(o.ID))
	}
}

// deliver hands on some of the provider's events, or all: in any order, and some of them twice.
func (m *ledgerModel) deliver(all bool) {
	events := m.Provider.Events()
	for _, ev := range events[m.seen:] {
		out := ev.Settle(m.Promise.Account)
		if out.Parent != "" && m.rng.IntN(2) == 0 {
			out.Operation = "" // it names nothing of ours: perhaps a refund made elsewhere
		}
		m.late = append(m.late, out)
	}
	m.seen = len(events)
	m.rng.Shuffle(len(m.late), func(i, j int) { m.late[i], m.late[j] = m.late[j], m.late[i] })
	for len(m.late) > 0 && (all || m.rng.IntN(3) > 0) {
		ev := m.late[0]
		got, err := m.p.Engine.Observe(context.Background(), ev)
		m.say("event %s of %s: parked %v, duplicate %v, %v", ev.Type, ev.Ref, got.Parked, got.Duplicate, err)
		if err != nil {
			return // comes again
		}
		m.late = m.late[1:]
		m.told = append(m.told, ev)
	}
	if len(m.told) > 0 && m.rng.IntN(4) == 0 {
		_, _ = m.p.Engine.Observe(context.Background(), pick(m.rng, m.told...))
	}
}

// judge holds what is stored against the provider's ledger.
func (m *ledgerModel) judge(n int) {
	m.T.Helper()
	synctest.Wait()
	parcels := map[string]int{}
	for _, r := range m.All("parcel") {
		parcels[r.Subject]++
	}
	truth := map[string]providertest.Object{}
	for _, o := range m.Provider.Objects() {
		truth[o.ID] = o
	}
	for _, r := range m.All("charge") {
		effects := m.Provider.Effects(r.ID)
		if effects > 1 || r.State.Settled() && ref(r) != "" && effects != 1 {
			m.fail("step %d: %v has %d effects", n, r, effects)
		}
		m.judgeEvidence(n, r, truth)
		m.judgeLedger(n, r, truth)
		if shipped := parcels[r.Subject]; shipped > 1 || (shipped == 1) != (r.Consequence == settle.ConsequenceDone) || shipped == 1 && effects != 1 {
			m.fail("step %d: %v, consequence %q, was shipped %d times (I11); %s", n, r, r.Consequence, shipped, m.story(r.ID))
		}
		if parcels[r.Subject] > 0 && m.undoneFirst(r.ID) {
			m.fail("step %d: %v was shipped after it was wholly undone (I11); %s", n, r, m.story(r.ID))
		}
	}
	for _, kind := range []string{"refund", "void"} {
		for _, r := range m.All(kind) {
			if m.Provider.Effects(r.ID) > 1 {
				m.fail("step %d: %v has %d effects", n, r, m.Provider.Effects(r.ID))
			}
			m.judgeEvidence(n, r, truth)
		}
	}
}

// undoneFirst reports that an operation was wholly undone before it was ever succeeded.
func (m *ledgerModel) undoneFirst(id string) bool {
	for _, x := range m.History(id) {
		if x.To == settle.StateSucceeded || x.To == settle.StateCompensated {
			return x.To == settle.StateCompensated
		}
	}
	return false
}

// judgeEvidence: whatever came in whatever order, the ranks are those that the provider's objects had (I7).
func (m *ledgerModel) judgeEvidence(n int, r settle.Record, truth map[string]providertest.Object) {
	m.T.Helper()
	for _, x := range r.References {
		o, ok := truth[x.Ref]
		allowed := map[providertest.ObjectStatus][]settle.Rank{
			providertest.StatusProcessing: {settle.RankKnown},
			providertest.StatusFailed:     {settle.RankKnown, settle.RankFailed},
			providertest.StatusSucceeded:  {settle.RankKnown, settle.RankSucceeded},
			providertest.StatusReversed:   {settle.RankKnown, settle.RankSucceeded, settle.RankReversed},
			providertest.StatusVoided:     {settle.RankKnown, settle.RankSucceeded, settle.RankReversed},
		}[o.Status]
		if x.Ref != "" && (!ok || !slices.Contains(allowed, x.Rank)) {
			m.fail("step %d: %v says that %s is %q; it is %q (I7); %s", n, r, x.Ref, x.Rank, o.Status, m.story(r.ID))
		}
	}
	// And nothing that was proven is forgotten.
	high := map[string]settle.Rank{}
	for _, x := range m.History(r.ID) {
		if rank, ok := map[settle.Fact]settle.Rank{settle.Applied: settle.RankSucceeded, settle.Reversed: settle.RankReversed}[x.Fact]; ok && (high[x.Ref] != settle.RankReversed) {
			high[x.Ref] = rank
		}
	}
	for _, x := range r.References {
		if want := high[x.Ref]; want != "" && x.Rank != want {
			m.fail("step %d: %v says that %s is %q, and was told that it is %q (I7); %s", n, r, x.Ref, x.Rank, want, m.story(r.ID))
		}
	}
}

// judgeLedger: what settle has done is done and counted, and never more than there was (I9).
func (m *ledgerModel) judgeLedger(n int, r settle.Record, truth map[string]providertest.Object) {
	m.T.Helper()
	limit := r.Terms.Amount.Value.IntPart()
	var undone, counted int64
	for _, o := range truth {
		if o.Parent != "" && o.Reference != "" && o.Status == providertest.StatusSucceeded && truth[o.Parent].Reference == r.ID {
			undone += o.Amount
		}
	}
	external := map[string]bool{}
	for _, p := range r.Ledger {
		if p.Status == settle.PostingOpen || p.Status == settle.PostingDone {
			if p.External == "" {
				counted += p.Amount.Value.IntPart()
			}
		}
		if p.External != "" {
			o, ok := truth[p.External]
			if external[p.External] || !ok || o.Reference != "" {
				m.fail("step %d: %v counts %s as foreign, which is %+v (I9)", n, r, p.External, o)
			}
			external[p.External] = true
		}
	}
	if counted > limit || undone > counted {
		m.fail("step %d: of %d, %d were undone by settle, and %d are counted; %+v (I9); %s", n, limit, undone, counted, r.Ledger, m.story(r.ID))
	}
}

// finish delivers what is left, twice over, and lets everything come to rest: then the ledgers are equal.
func (m *ledgerModel) finish() {
	m.say("the end")
	for i := 0; m.Provider.ScriptLeft() > 0 && i < 1000; i++ { // what is left of the script befalls strangers
		_, _ = m.Provider.Create(m.Ctx, providertest.Request{Kind: providertest.KindCharge, Key: fmt.Sprint("stranger ", i), Amount: 1, Currency: "EUR"})
		_, _ = m.Provider.List(m.Ctx, providertest.Query{})
	}
	for range 8 {
		decided := false
		for _, o := range m.Provider.Objects() {
			if o.Status == providertest.StatusProcessing {
				m.noErr(m.Provider.Finish(o.ID))
				decided = true
			}
		}
		for _, r := range m.Matching(settle.Query{States: []settle.State{settle.StateReview}}) {
			if r.Review.Reason == settle.ReasonEscalated { // many crashes in a row: a person lets it go on
				_, err := m.p.Engine.Resolve(m.Ctx, r.ID, settle.Decision{Actor: "ana", Reason: "again", Evidence: "none", Resume: true})
				m.noErr(err)
				decided = true
			}
		}
		m.deliver(true)
		m.Elapse(6 * time.Hour)
		if !decided {
			break
		}
	}
	m.judge(-1)
	before := map[string]settle.State{}
	for _, kind := range []string{"charge", "refund", "void"} {
		for _, r := range m.All(kind) {
			before[r.ID] = r.State
			if !r.State.Settled() && r.State != settle.StateReview {
				m.fail("%v is left (I10); %s", r, m.story(r.ID))
			}
		}
	}
	for _, i := range m.rng.Perm(len(m.told)) {
		ev := m.told[i]
		ev.ID += " again" // not known by its id
		_, err := m.p.Engine.Observe(context.Background(), ev)
		m.noErr(err)
	}
	m.Elapse(time.Hour)
	truth := map[string]providertest.Object{}
	for _, o := range m.Provider.Objects() {
		truth[o.ID] = o
	}
	for id, was := range before {
		if r := m.Get(id); r.State != was {
			m.fail("%v was %s before the same events came again (I7); %s", r, was, m.story(id))
		}
	}
	for _, r := range m.All("charge") {
		foreign := map[string]bool{}
		for _, p := range r.Ledger {
			done := p.Status == settle.PostingDone
			if p.External != "" {
				foreign[p.External] = true
				if o := truth[p.External]; done != (o.Status == providertest.StatusSucceeded) || p.Amount.Value.IntPart() != o.Amount {
					m.fail("%v counts %+v; it is %+v (I9)", r, p, o)
				}
				continue
			}
			var undone int64
			for _, o := range truth {
				if o.Reference == p.Operation && o.Status == providertest.StatusSucceeded {
					undone += o.Amount
				}
			}
			if done != (undone > 0) || done && p.Amount.Value.IntPart() != undone {
				m.fail("%v counts %+v; undone were %d (I9); %s", r, p, undone, m.story(p.Operation))
			}
		}
		for _, o := range truth {
			if o.Parent != "" && o.Reference == "" && truth[o.Parent].Reference == r.ID && !foreign[o.ID] {
				m.fail("%v does not count %s, made by hand (I9); %s", r, o.ID, m.story(r.ID))
			}
		}
	}
}
