package settle

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestMeasuresCostNothingWithoutAnObserver: nobody hears them, so nothing is made of them: no allocation, no look at the record.
func TestMeasuresCostNothingWithoutAnObserver(t *testing.T) {
	e, err := Open(&deadStore{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !e.silent {
		t.Fatal("an engine without observer and logger is not silent")
	}
	ctx := context.Background()
	r := Record{ID: "op", Kind: "charge", State: StateSucceeded, Version: 3, CreatedAt: time.Unix(1, 0), AsOf: time.Unix(2, 0), Attempts: []Attempt{{N: 1}}}
	w := Write{Record: r, Entry: Entry{From: StateSubmitting, To: StateSucceeded, Fact: Applied, Source: SourceReply, Attempt: 1}}
	refused := error(&Error{Do: "execute", ID: "op", Err: ErrMismatch})
	for name, f := range map[string]func(){
		"transition": func() { e.report(ctx, &w, &r) },
		"replay":     func() { e.prevented(ctx, "charge", &r, nil) },
		"refusal":    func() { e.prevented(ctx, "charge", &r, refused) },
		"recovery":   func() { e.recovery(ctx, StateUnknown, &r, nil) },
		"no answer":  func() { e.proveNothing(ctx, &r, 1, Unclear) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations that nobody asked for", name, n)
		}
	}
	heard := 0
	loud, err := Open(&deadStore{}, &Options{Observer: hearing(func(Notice) { heard++ })})
	if err != nil {
		t.Fatal(err)
	}
	loud.report(ctx, &w, &r)
	loud.prevented(ctx, "charge", &r, nil)
	loud.recovery(ctx, StateUnknown, &r, nil)
	if heard != 3 {
		t.Errorf("an observer hears %d of 3 notices", heard)
	}
}

type hearing func(Notice)

func (h hearing) Notice(_ context.Context, n Notice) { h(n) }

// deadStore is a store that nothing is asked of.
type deadStore struct{ Store }

// Commit implements Store.
func (*deadStore) Commit(context.Context, Change) ([]Record, error) { return nil, errors.New("dead") }
