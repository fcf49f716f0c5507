package settle

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A difference finds every name that one side lacks or has twice, whatever the order, and in what little is looked at
// again all of them are.
func TestDifference(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const n = 20_000
	odd := map[int]int{} // name → how often the report has it, of what the store has once
	for range 50 {
		odd[rng.IntN(n)] = 2 * rng.IntN(2)
	}
	d := new(difference)
	for _, i := range rng.Perm(n) {
		times, ok := odd[i]
		if !ok {
			times = 1
		}
		for range times {
			d.listed(nameOf("charge", strconv.Itoa(i)))
			d.matched(nameOf("charge", strconv.Itoa(i)))
		}
	}
	half := new(difference) // goes on in another process
	text, err := d.MarshalBinary()
	require.NoError(t, err)
	require.NoError(t, half.UnmarshalBinary(text))
	for _, i := range rng.Perm(n) {
		half.stored(nameOf("charge", strconv.Itoa(i)))
	}
	look := map[int]bool{}
	for _, group := range half.groups(100) {
		names := 0
		for _, b := range group {
			look[b] = true
			names += int(half.lines[b])
		}
		assert.True(t, names <= 100 || len(group) == 1, "a group of %d names", names)
	}
	for i := range odd {
		assert.True(t, look[nameOf("charge", strconv.Itoa(i)).bucket()], "name %d", i)
	}
	assert.LessOrEqual(t, len(look), len(odd), "nothing else differs")
	assert.Error(t, half.UnmarshalBinary(text[1:]))
	assert.NotEqual(t, nameOf("charge", "A"), nameOf("refund", "A"))
}

func TestPosition(t *testing.T) {
	o := ReportOptions{Account: "a", Kinds: []string{"charge"}}.withDefaults()
	fresh, _, err := o.restore()
	require.NoError(t, err)
	p := &reportPass{position: fresh, o: &o, diff: new(difference)}
	p.Line, p.Summary.Lines = 7, 7
	p.diff.matched(nameOf("charge", "A"))
	text, err := p.encode()
	require.NoError(t, err)

	o.Resume = text
	got, d, err := o.restore()
	require.NoError(t, err)
	assert.Equal(t, p.position, got)
	assert.Equal(t, p.diff, d)

	other := o
	other.Kinds = []string{"refund"}
	_, _, err = other.restore()
	assert.ErrorContains(t, err, "another report")
	for _, bad := range []string{"x", `{"version":2}`, `{"version":1,"for":"` + o.identity() + `"}`} {
		o.Resume = []byte(bad)
		_, _, err = o.restore()
		assert.Error(t, err, "%s", bad)
	}
	assert.True(t, json.Valid(text))
}

// Ids are found by their time.
func TestIDAfter(t *testing.T) {
	before := idAfter(time.Now())
	id := newID()
	assert.Greater(t, id, before)
	assert.Less(t, id, idAfter(time.Now().Add(time.Millisecond)))
	assert.Equal(t, "00000000-0000-", idAfter(time.Time{}))
}
