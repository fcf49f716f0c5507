package settle

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// The policy of who comes next, one decision at a time.
func TestWhoComesNext(t *testing.T) {
	for name, x := range map[string]struct {
		c      crowd
		modest bool
		want   []ask
	}{
		"nothing runs": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16}, {kind: "b", room: 16}}},
			true,
			[]ask{{kinds: []string{"a", "b"}, most: 16}},
		},
		"a kind has its share": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16, running: 4}, {kind: "b", room: 16, running: 3}}},
			true,
			[]ask{{kinds: []string{"b"}, most: 16}},
		},
		"and gets what nobody else wants": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16, running: 15}, {kind: "b", room: 16}}},
			false,
			[]ask{{kinds: []string{"a", "b"}, most: 16}},
		},
		"the only kind": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16, running: 15}}},
			true,
			[]ask{{kinds: []string{"a"}, most: 16}},
		},
		"scopes have their share": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16}}, scopes: map[string]int{"y": 4, "x": 9, "z": 3}},
			true,
			[]ask{{kinds: []string{"a"}, except: []string{"x", "y"}, most: 16}},
		},
		"and get what nobody else wants": {
			crowd{slots: 16, lanes: []lane{{kind: "a", room: 16}}, scopes: map[string]int{"x": 15}},
			false,
			[]ask{{kinds: []string{"a"}, most: 16}},
		},
		"a kind with a limit is claimed by itself": {
			crowd{slots: 16, lanes: []lane{{kind: "a", own: true, room: 2, running: 1}, {kind: "b", room: 16}, {kind: "c", room: 16}}},
			false,
			[]ask{{kinds: []string{"a"}, most: 2}, {kinds: []string{"b", "c"}, most: 16}},
		},
		"a kind at its limit is not claimed": {
			crowd{slots: 16, lanes: []lane{{kind: "a", own: true, running: 3}, {kind: "b", room: 16}}},
			false,
			[]ask{{kinds: []string{"b"}, most: 16}},
		},
		"who was first is last": {
			crowd{slots: 8, turn: 4, lanes: []lane{{kind: "a", own: true, room: 8}, {kind: "b", own: true, room: 8}, {kind: "c", room: 8}}},
			false,
			[]ask{{kinds: []string{"b"}, most: 8}, {kinds: []string{"c"}, most: 8}, {kinds: []string{"a"}, most: 8}},
		},
		"a single slot is a share": {
			crowd{slots: 1, lanes: []lane{{kind: "a", room: 1, running: 1}, {kind: "b", room: 1}}},
			true,
			[]ask{{kinds: []string{"b"}, most: 1}},
		},
	} {
		if got := x.c.asks(round{x.modest, x.modest}); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: asks for %+v, want %+v", name, got, x.want)
		}
	}
}

// However starts and questions are spread, no span of the rate's length holds more starts than it allows;
// and after that length everything is allowed again.
func TestRateHoldsInAnySpan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		w := pace{rate: Rate{Count: 1 + rng.IntN(20), Per: time.Duration(1+rng.IntN(1000)) * time.Millisecond}}
		now := time.Unix(1_700_000_000, 0)
		var starts []time.Time
		for range 500 {
			now = now.Add(time.Duration(rng.Int64N(int64(w.rate.Per))) / time.Duration(1+rng.IntN(20)))
			n := w.allowed(now)
			if n > 0 {
				n = 1 + rng.IntN(n)
			} else if d := w.next(now); d <= 0 || d > w.rate.Per {
				t.Fatalf("nothing is allowed, and the next is in %v of %v", d, w.rate.Per)
			}
			w.start(now, n)
			for range n {
				starts = append(starts, now)
			}
		}
		for i := range starts {
			if j := i + w.rate.Count; j < len(starts) && starts[j].Sub(starts[i]) < w.rate.Per {
				t.Fatalf("%d starts in %v, want at most %d in %v", w.rate.Count+1, starts[j].Sub(starts[i]), w.rate.Count, w.rate.Per)
			}
		}
		if n := w.allowed(now.Add(w.rate.Per)); n != w.rate.Count {
			t.Fatalf("after %v %d are allowed, want %d", w.rate.Per, n, w.rate.Count)
		}
	}
}
