package settle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	"github.com/settle-go/settle/internal/scenario"
	"github.com/settle-go/settle/memstore"
	pt "github.com/settle-go/settle/providertest"
)

// ear is an observer that keeps what it hears.
type ear struct {
	mu    sync.Mutex
	heard []settle.Notice
}

// Notice implements settle.Observer.
func (o *ear) Notice(_ context.Context, n settle.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard = append(o.heard, n)
}

// of lists what was heard of an event since the last call.
func (o *ear) of(event settle.NoticeEvent) []settle.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []settle.Notice
	for _, n := range o.heard {
		if n.Event == event {
			out = append(out, n)
		}
	}
	o.heard = slices.DeleteFunc(o.heard, func(n settle.Notice) bool { return n.Event == event })
	return out
}

func (o *ear) codes(event settle.NoticeEvent) string {
	var out []string
	for _, n := range o.of(event) {
		out = append(out, n.Code)
	}
	return strings.Join(out, " ")
}

// measured plays f in a world of one process whose notices are heard.
func measured(t *testing.T, o settle.Options, f func(t *testing.T, r *rig.Rig, p *rig.Process, heard *ear)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		heard := new(ear)
		o.Observer = heard
		r := rig.New(t, memstore.New(nil), nil)
		f(t, r, r.Start(&o), heard)
	})
}

// TestMeasure_DuplicatesPrevented: each call or event that could have been a second effect is told of once, with why it was none.
func TestMeasure_DuplicatesPrevented(t *testing.T) {
	measured(t, settle.Options{}, func(t *testing.T, r *rig.Rig, p *rig.Process, heard *ear) {
		op := rig.Op("order-1", 5, "EUR")
		op.Key, op.Hold = "k-1", "order-1"
		say := func(what, want string) {
			t.Helper()
			if got := heard.codes(settle.EventPrevented); got != want {
				t.Errorf("%s: prevented %q, want %q", what, got, want)
			}
		}
		out, err := p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		say("the first call", "")
		_, err = p.Charges.Execute(t.Context(), op)
		rig.OK(t, err)
		say("the same again", settle.PreventedReplay)
		_, err = p.Charges.Register(t.Context(), op)
		rig.OK(t, err)
		say("registered again", settle.PreventedReplay)
		other := op
		other.Request.Amount = 6
		_, err = p.Charges.Execute(t.Context(), other)
		rig.Is(t, err, settle.ErrMismatch)
		say("another amount", settle.PreventedMismatch)
		other = op
		other.Purpose = "tip"
		_, err = p.Charges.Execute(t.Context(), other)
		rig.Is(t, err, settle.ErrConflict)
		say("the key with another intent", settle.PreventedConflict)
		other.Key = "k-2"
		_, err = p.Charges.Execute(t.Context(), other)
		rig.Is(t, err, settle.ErrHeld)
		if n := heard.of(settle.EventPrevented); len(n) != 1 || n[0].Code != settle.PreventedHeld || n[0].Operation != out.ID || n[0].Kind != rig.KindCharge {
			t.Errorf("the hold: %+v", n)
		}
		r.Provider.Script(pt.Decline("no_funds"))
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-2", 5, "EUR"))
		rig.Is(t, err, settle.ErrFailed)
		say("a call that is none of these", "")

		r.Provider.Script(pt.Slow(2 * time.Second))
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = p.Charges.Execute(t.Context(), rig.Op("order-3", 5, "EUR")) })
		}
		wg.Wait()
		say("five at a time", strings.TrimSpace(strings.Repeat(settle.PreventedShared+" ", 4)))

		ev := settle.Event{Account: out.Account, ID: "evt-1", Ref: r.Provider.Objects()[0].ID}
		for range 3 {
			_, err = p.Observe(t.Context(), ev)
			rig.OK(t, err)
		}
		say("an event three times", settle.PreventedEvent+" "+settle.PreventedEvent)

		effect := settle.Effect{Operation: out.ID}
		for range 2 {
			_, err = p.Refunds.Compensate(t.Context(), effect, "returned", rig.Refund{Amount: 2, Currency: "EUR"})
			rig.OK(t, err)
		}
		say("a refund twice", settle.PreventedReplay)
		effect.Ref = r.Provider.Objects()[0].ID
		_, err = p.Refunds.Compensate(t.Context(), effect, "returned", rig.Refund{Amount: 2, Currency: "EUR"})
		rig.OK(t, err)
		say("the same one by its reference", settle.PreventedReplay)
	})
}

// TestMeasure_AttemptsPerOperation: the notice of a transition says how many requests there have been.
func TestMeasure_AttemptsPerOperation(t *testing.T) {
	measured(t, settle.Options{PollInterval: time.Second}, func(t *testing.T, r *rig.Rig, p *rig.Process, heard *ear) {
		r.Provider.Script(pt.RateLimit(time.Second), pt.RateLimit(time.Second))
		rec, err := p.Charges.Register(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.OK(t, err)
		p.Work()
		rig.After(time.Minute)
		var last settle.Notice
		for _, n := range heard.of(settle.EventTransition) {
			if n.Operation == rec.ID {
				last = n
			}
		}
		if last.To != settle.StateSucceeded || last.Attempts != 3 || last.Attempt != 3 {
			t.Errorf("the last transition is %+v, want a success after three requests", last)
		}
	})
}

// TestMeasure_NoAnswers: each call that ended without an answer is told of, with a word for why: timeouts apart from the rest.
func TestMeasure_NoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, submit := range map[string]func(context.Context, *acall, int) (aobs, error){
			"error": noReply,
			"deadline": func(ctx context.Context, c *acall, _ int) (aobs, error) {
				_ = c.Key()
				<-ctx.Done()
				return aobs{}, ctx.Err()
			},
			"panic":   func(context.Context, *acall, int) (aobs, error) { panic("wild") },
			"unclear": func(_ context.Context, c *acall, _ int) (aobs, error) { _ = c.Key(); return aobs{}, nil },
		} {
			heard := new(ear)
			f := &fakeAd{submit: submit, lookup: func(_ context.Context, c *acall, _ int) (aobs, error) {
				return aobs{Fact: settle.Applied, Ref: "r", Terms: c.Terms}, nil
			}}
			e := must(t, nil2(settle.Open(memstore.New(nil), &settle.Options{Observer: heard})), nil)
			x := must(t, nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil)), nil)
			_, err := x.Execute(t.Context(), aop(5))
			rig.OK(t, err)
			if got := heard.codes(settle.EventNoAnswer); got != want {
				t.Errorf("no answers %q, want %q", got, want)
			}
			answered := 0
			for _, n := range append(heard.of(settle.EventTransition), heard.of(settle.EventEvidence)...) {
				if n.Fact != settle.Unclear && (n.Source == settle.SourceReply || n.Source == settle.SourceLookup) {
					answered++
				}
			}
			if answered != 1 {
				t.Errorf("%s: %d answers, want that of the lookup: the share without an answer is one of two", want, answered)
			}
		}
	})
}

// TestMeasure_Recovery: how each pass over what may exist ended, and how old the operation was: what became of the
// unknown ones, and when.
func TestMeasure_Recovery(t *testing.T) {
	measured(t, settle.Options{PollInterval: time.Second, EscalateAfter: 5 * time.Minute}, func(t *testing.T, r *rig.Rig, p *rig.Process, heard *ear) {
		r.Provider.Script(pt.DropReply(), pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""), pt.Status(500, ""), pt.Status(500, ""))
		out, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		if got := heard.of(settle.EventRecovery); len(got) != 0 {
			t.Errorf("the first pass is no recovery: %+v", got)
		}
		p.Work()
		rig.After(time.Minute)
		got := heard.of(settle.EventRecovery)
		if len(got) != 2 || got[0].To != settle.StateUnknown || got[1].To != settle.StateSucceeded {
			t.Fatalf("the passes ended %+v, want one in vain and one that found it", got)
		}
		if n := got[1]; n.From != settle.StateUnknown || n.Operation != out.ID || n.Age < 2*time.Second || n.Age > time.Minute || n.Attempts != 3 {
			t.Errorf("the second pass is %+v", n)
		}
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-2", 5, "EUR"))
		rig.OK(t, err)
		if got := heard.of(settle.EventRecovery); len(got) != 0 {
			t.Errorf("a success without trouble is no recovery: %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		heard := new(ear)
		f := &fakeAd{submit: noReply, lookup: func(context.Context, *acall, int) (aobs, error) { return aobs{}, errors.New("down") }}
		e := must(t, nil2(settle.Open(memstore.New(nil), &settle.Options{Observer: heard})), nil)
		x := must(t, nil2(settle.New(e, "pay", f.adapter(regressContract(true, settle.Authoritative)), nil)), nil)
		_, err := x.Execute(t.Context(), aop(5))
		rig.Is(t, err, settle.ErrUnknown)
		stop := work(t, e)
		time.Sleep(time.Hour)
		stop()
		to := map[settle.State]int{}
		for _, n := range heard.of(settle.EventRecovery) {
			if n.From == settle.StateUnknown {
				to[n.To]++
			}
		}
		if to[settle.StateReview] != 1 || to[settle.StateUnknown] < 2 || to[settle.StateSucceeded] != 0 {
			t.Errorf("the passes over the unknown one ended %v, want several in vain and then a review", to)
		}
	})
}

// TestMeasure_TallyOfSealed: a Sealer hides no operation from the counts.
func TestMeasure_TallyOfSealed(t *testing.T) {
	o := settle.Options{TallyEvery: 30 * time.Second, PollInterval: time.Second, Sealer: scenario.NewKeyset("k1")}
	measured(t, o, func(t *testing.T, _ *rig.Rig, p *rig.Process, heard *ear) {
		_, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.OK(t, err)
		p.Work()
		rig.After(time.Minute)
		if got := heard.of(settle.EventTally); len(got) == 0 {
			t.Error("nothing was counted")
		}
	})
}

// TestMeasure_Tally: counts and ages by state, the review queue among them, as Engine.List has them one by one; what
// is not there any more is told as none.
func TestMeasure_Tally(t *testing.T) {
	measured(t, settle.Options{TallyEvery: 30 * time.Second, PollInterval: time.Second}, func(t *testing.T, r *rig.Rig, p *rig.Process, heard *ear) {
		last := func() map[settle.State]settle.Notice {
			out := map[settle.State]settle.Notice{}
			for _, n := range heard.of(settle.EventTally) {
				if n.Kind == rig.KindCharge {
					out[n.To] = n
				}
			}
			return out
		}
		r.Provider.Script(pt.WrongAmount(7)) // disputed: a person must look
		disputed, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.Is(t, err, settle.ErrReview)
		r.Provider.Script(pt.Processing())
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-2", 5, "EUR"))
		rig.Is(t, err, settle.ErrProcessing)
		for _, s := range []string{"order-3", "order-4"} {
			_, err = p.Charges.Execute(t.Context(), rig.Op(s, 5, "EUR"))
			rig.OK(t, err)
		}
		rig.After(time.Hour)
		if got := heard.of(settle.EventTally); len(got) != 0 {
			t.Errorf("counted without a worker: %+v", got)
		}
		p.Work()
		rig.After(time.Minute)
		got, want := last(), map[settle.State]int64{}
		for _, x := range r.All() {
			want[x.State]++
		}
		counts := map[settle.State]int64{}
		for s, n := range got {
			counts[s] = n.Count
		}
		if !maps.Equal(counts, want) || want[settle.StateReview] != 1 || want[settle.StateSucceeded] != 2 {
			t.Errorf("counted %v, listed %v", counts, want)
		}
		if n := got[settle.StateReview]; n.Age < time.Hour || n.Age > time.Hour+2*time.Minute {
			t.Errorf("the oldest review is %v old", n.Age)
		}
		_, err = p.Resolve(t.Context(), disputed.ID, settle.Decision{Actor: "ann", Reason: "r", Evidence: "e", Fact: settle.Applied})
		rig.OK(t, err)
		rig.After(time.Minute)
		if n, ok := last()[settle.StateReview]; ok && n.Count != 0 {
			t.Errorf("the review queue is %+v, want none", n)
		}
		rig.After(time.Minute)
		if n, ok := last()[settle.StateReview]; ok {
			t.Errorf("none is told once: %+v", n)
		}
	})
	store := &tapped{Store: memstore.New(nil)} // hides what the store can do
	_, err := settle.Open(store, &settle.Options{TallyEvery: time.Minute})
	rig.Typed(t, err, settle.ErrInvalid, "Options.TallyEvery")
	_, err = settle.Open(memstore.New(nil), &settle.Options{TallyEvery: time.Millisecond})
	rig.Typed(t, err, settle.ErrInvalid, "Options.TallyEvery")
}

// TestMeasure_Log: every measure reaches slog without an observer.
func TestMeasure_Log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var mu sync.Mutex
		log := slog.New(slog.NewTextHandler(writing(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(p)
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
		r := rig.New(t, memstore.New(nil), nil)
		p := r.Start(&settle.Options{Logger: log, TallyEvery: time.Minute, PollInterval: time.Second})
		r.Provider.Script(pt.DropReply())
		r.Provider.ScriptLookup(pt.Status(500, ""))
		_, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.Is(t, err, settle.ErrUnknown)
		p.Work()
		rig.After(2 * time.Minute)
		_, err = p.Charges.Execute(t.Context(), rig.Op("order-1", 5, "EUR"))
		rig.OK(t, err)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{
			"settle prevented", "code=replay", "settle recovery", "from=unknown to=succeeded", "settle tally", "count=1", "settle no_answer", "attempts=1",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, text.String())
			}
		}
		if strings.Contains(text.String(), "order-1") {
			t.Error("the log names a subject (I16)")
		}
	})
}

type writing func([]byte) (int, error)

// Write implements io.Writer.
func (w writing) Write(p []byte) (int, error) { return w(p) }
