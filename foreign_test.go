package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What was undone elsewhere counts once for each reference, with the most that was said of it, in
// whatever order it comes (I7, I9).
func TestI9_ForeignLines(t *testing.T) {
	effect := Effect{Operation: "op", Ref: "A", Amount: euros(1000)}
	line := func(ref string, fact Fact, cents int64) Posting { return foreignLine(effect, ref, fact, euros(cents)) }
	assert.Equal(t, Posting{Ref: "A", External: "re", Amount: euros(300), Status: PostingDone}, line("re", Applied, 300))
	assert.Equal(t, PostingUndone, line("re", Reversed, 300).Status)
	for _, other := range []Amount{{}, Minor(300, "USD")} {
		assert.Equal(t, euros(1000), foreignLine(effect, "re", Applied, other).Amount, "%v counts as all of it", other)
	}

	said := []Posting{line("re", Applied, 300), line("re", Applied, 200), line("re", Reversed, 300), line("other", Applied, 100)}
	var want []Posting
	permute(len(said), func(order []int) {
		var got []Posting
		for _, i := range order {
			got = counted(got, said[i])
		}
		if len(got) == 2 && got[0].External == "other" {
			got[0], got[1] = got[1], got[0]
		}
		if want == nil {
			want = got
		}
		assert.Equal(t, want, got, "order %v", order)
	})
	assert.Len(t, want, 2)
	assert.Equal(t, PostingUndone, want[0].Status)
	assert.Equal(t, euros(300), want[0].Amount)

	own := Posting{Operation: "refund", Ref: "A", Amount: euros(5), Status: PostingDone}
	child := &Record{ID: "refund", References: []Reference{{Ref: "re", Rank: RankKnown}, {Rank: RankSucceeded}}}
	assert.Equal(t, []Posting{own, line("other", Applied, 100)}, attributed([]Posting{own, line("re", Applied, 300), line("other", Applied, 100)}, child))
}

func permute(n int, f func([]int)) {
	var walk func(head, rest []int)
	walk = func(head, rest []int) {
		if len(rest) == 0 {
			f(head)
		}
		for i, x := range rest {
			tail := append(append([]int(nil), rest[:i]...), rest[i+1:]...)
			walk(append(append([]int(nil), head...), x), tail)
		}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	walk(nil, all)
}

// Only the amount of a compensation of the whole follows the effect, and nothing else of its terms (I2).
func TestI2_RederivedTerms(t *testing.T) {
	named, nameless := Effect{Ref: "A", Amount: euros(700)}, Effect{Amount: euros(700)}
	part := &Record{Undoes: Undo{Operation: "op"}, Terms: Terms{Account: "acct", Amount: euros(1000)}}
	whole := &Record{Undoes: Undo{Operation: "op", Whole: true}, Terms: part.Terms}
	terms := func(account string, cents int64) Terms { return Terms{Account: account, Amount: euros(cents)} }
	for _, c := range []struct {
		name   string
		r      *Record
		t      Terms
		effect Effect
		want   bool
	}{
		{"the same amount, the effect has a name by now", part, terms("acct", 1000), named, true},
		{"the same amount, the effect has no name", part, terms("acct", 1000), nameless, false},
		{"another account", part, terms("other", 1000), named, false},
		{"another amount of a part", part, terms("acct", 700), named, false},
		{"the whole of another effect", whole, terms("acct", 700), named, true},
		{"the whole of another effect without a name", whole, terms("acct", 700), nameless, true},
		{"another amount than the whole", whole, terms("acct", 600), named, false},
		{"the whole, at another account", whole, terms("other", 700), named, false},
		{"no compensation", &Record{Terms: part.Terms}, terms("acct", 1000), named, false},
	} {
		assert.Equal(t, c.want, c.r.rederives(c.t, c.effect), c.name)
	}
	assert.True(t, whole.outdated(named))
	assert.False(t, whole.outdated(Effect{Amount: euros(1000)}))
	assert.False(t, part.outdated(named))
	assert.False(t, (&Record{Undoes: Undo{Whole: true}}).outdated(named), "terms without an amount have nothing to be outdated")
	assert.Equal(t, euros(700), Posting{Whole: true, Amount: euros(1000)}.wanted(named))
	assert.Equal(t, euros(1000), Posting{Amount: euros(1000)}.wanted(named))
}

// An effect is gone when nothing of it is left that others have not undone for certain.
func TestI9_Gone(t *testing.T) {
	assert.True(t, Effect{Amount: euros(1000), Returned: euros(1000)}.gone())
	assert.True(t, Effect{Amount: euros(1000), Returned: euros(1001)}.gone())
	assert.False(t, Effect{Amount: euros(1000), Returned: euros(999)}.gone())
	assert.False(t, Effect{Amount: euros(1000), Reserved: euros(1000)}.gone())
	assert.False(t, Effect{}.gone(), "an effect without an amount")
}

// What says to have undone an effect names it, or there is one; what is known of it does not matter, except that
// there must be one.
func TestForeignTarget(t *testing.T) {
	at := func(ref string, rank Rank) Reference { return Reference{Ref: ref, Rank: rank} }
	for _, c := range []struct {
		name string
		refs []Reference
		ref  string
		want string
		ok   bool
	}{
		{"by name", []Reference{at("A", RankSucceeded), at("B", RankSucceeded)}, "B", "B", true},
		{"the only one", []Reference{at("A", RankFailed), at("B", RankSucceeded)}, "", "B", true},
		{"one of two", []Reference{at("A", RankSucceeded), at("B", RankSucceeded)}, "", "", false},
		{"disputed", []Reference{at("A", RankDisputed)}, "A", "A", true},
		{"reversed", []Reference{at("A", RankReversed)}, "A", "A", true},
		{"known only", []Reference{at("A", RankKnown)}, "A", "", false},
		{"failed", []Reference{at("A", RankFailed)}, "A", "", false},
		{"another name", []Reference{at("A", RankSucceeded)}, "B", "", false},
	} {
		e, ok := (&Record{ID: "op", References: c.refs}).undoneBy(c.ref)
		assert.Equal(t, c.ok, ok, c.name)
		assert.Equal(t, c.want, e.Ref, c.name)
	}
	undo := &Record{Undoes: Undo{Operation: "op", Ref: "A"}}
	assert.True(t, undo.misnamed(&Event{Parent: "B"}))
	assert.False(t, undo.misnamed(&Event{Parent: "A"}))
	assert.False(t, undo.misnamed(&Event{}))
	assert.False(t, (&Record{}).misnamed(&Event{Parent: "B"}))
}

// Fulfilment stops when one of the confirmed effects is being undone as a whole (I11).
func TestI11_AnyGone(t *testing.T) {
	ref := func(name string, rank Rank) Reference {
		return Reference{Ref: name, Rank: rank, Terms: Terms{Amount: euros(1000)}}
	}
	for _, c := range []struct {
		name string
		refs []Reference
		p    Posting
		want bool
	}{
		{"open", []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}, Posting{Operation: "x", Ref: "A", Amount: euros(1000), Status: PostingOpen}, true},
		{"done", []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}, Posting{Operation: "x", Ref: "B", Amount: euros(1000), Status: PostingDone}, true},
		{"a part", []Reference{ref("A", RankSucceeded), ref("B", RankSucceeded)}, Posting{Operation: "x", Ref: "A", Amount: euros(999), Status: PostingDone}, false},
		{"wished", []Reference{ref("A", RankSucceeded)}, Posting{Operation: "x", Ref: "A", Amount: euros(1000), Status: PostingWished}, false},
		{"of what is not confirmed", []Reference{ref("A", RankDisputed), ref("B", RankSucceeded)}, Posting{Operation: "x", Ref: "A", Amount: euros(1000), Status: PostingDone}, false},
	} {
		assert.Equal(t, c.want, (&Record{References: c.refs, Ledger: []Posting{c.p}}).anyGone(), c.name)
	}
}
