package providertest_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

const day = 24 * time.Hour

// handClock is a clock for Options.Now that the test moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func at(o *pt.Options) *handClock {
	c := &handClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	o.Now = c.Now
	return c
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestAcceptedAndDecidedDaysLater(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step    pt.Step
		becomes []pt.ObjectStatus // after 0, 1, 2, … days
		effects int
	}{
		{pt.FailAfter(3*day, "account_closed"), []pt.ObjectStatus{"processing", "processing", "processing", "failed", "failed"}, 0},
		{pt.SucceedAfter(2 * day), []pt.ObjectStatus{"processing", "processing", "succeeded", "succeeded"}, 1},
		{pt.ReverseAfter(2 * day), []pt.ObjectStatus{"succeeded", "succeeded", "reversed"}, 1},
		{pt.SucceedAfter(day).And(pt.ReverseAfter(3 * day)), []pt.ObjectStatus{"processing", "succeeded", "succeeded", "reversed"}, 1},
		{pt.ReverseAfter(3 * day).And(pt.SucceedAfter(day)).And(pt.DropReply()), []pt.ObjectStatus{"processing", "succeeded", "succeeded", "reversed"}, 1},
	} {
		t.Run(c.step.String(), func(t *testing.T) {
			t.Parallel()
			o := &pt.Options{}
			now := at(o)
			start := now.Now()
			p := pt.New(o)
			api := serve(t, p)
			p.Script(c.step)
			_, _ = api.Create(t.Context(), charge("k1"))
			for i, want := range c.becomes {
				if i > 0 {
					now.add(day)
				}
				got, err := api.Get(t.Context(), "ch_1")
				require.NoError(t, err)
				assert.Equal(t, want, got.Status, "on day %d", i)
			}
			assert.Equal(t, c.effects, p.Effects("order-17"))
			events := p.Events()
			last := events[len(events)-1]
			assert.Equal(t, "charge."+string(c.becomes[len(c.becomes)-1]), last.Type)
			assert.Zero(t, last.Created.Sub(start)%day, "an event bears the time at which it happened")
			assert.LessOrEqual(t, last.Created.Sub(start), 3*day)
		})
	}
}

func TestClockAndHand(t *testing.T) {
	t.Parallel()
	o := &pt.Options{Path: filepath.Join(t.TempDir(), "ledger"), KeyWindow: pt.Forever}
	now := at(o)
	p := pt.New(o)
	p.Script(pt.FailAfter(day, "late"), pt.SucceedAfter(2*day), pt.FailAfter(day, "late"))
	for _, key := range []string{"k1", "k2", "k3"} {
		_, err := p.Create(t.Context(), charge(key))
		require.NoError(t, err)
	}
	require.NoError(t, p.Finish("ch_1")) // by hand, before the clock
	require.NoError(t, p.Close())

	p, err := pt.Open(o) // what the clock will do outlives the process
	require.NoError(t, err)
	now.add(10 * day)
	var got []pt.ObjectStatus
	for _, o := range p.Objects() {
		got = append(got, o.Status)
	}
	assert.Equal(t, []pt.ObjectStatus{"succeeded", "succeeded", "failed"}, got)
	events := p.Events()
	require.Len(t, events, 2)
	assert.Equal(t, "ch_3", events[0].Object.ID, "the earliest first, although it is looked at later")
	assert.Equal(t, day, events[1].Created.Sub(events[0].Created))
	require.NoError(t, p.Close())

	p, err = pt.Open(o)
	require.NoError(t, err)
	assert.Empty(t, p.Events(), "what has happened does not happen again")
	require.NoError(t, p.Close())
}

func TestADecisionIsSeenByARepeatedRequest(t *testing.T) {
	t.Parallel()
	o := &pt.Options{KeyWindow: pt.Forever, Replay: pt.ReplayCurrent}
	now := at(o)
	p := pt.New(o)
	p.Script(pt.SucceedAfter(day))
	first, err := p.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	assert.Equal(t, pt.StatusProcessing, first.Status)
	now.add(day)
	again, err := p.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	assert.Equal(t, pt.StatusSucceeded, again.Status)
	assert.Equal(t, first.ID, again.ID)
}

func TestDecisionAndDelayedRequestInOrderOfTime(t *testing.T) {
	t.Parallel()
	o := &pt.Options{}
	now := at(o)
	p := pt.New(o)
	_, err := p.Create(t.Context(), charge(""))
	require.NoError(t, err)
	p.Script(pt.ReverseAfter(time.Hour), pt.ApplyAfter(2*time.Hour))
	_, err = p.Create(t.Context(), charge(""))
	require.NoError(t, err)
	_, err = p.Create(t.Context(), pt.Request{Kind: pt.KindRefund, Parent: "ch_2", Amount: 1, Currency: "EUR"})
	require.ErrorIs(t, err, pt.ErrNoReply)
	now.add(day)
	assert.Len(t, p.Objects(), 2, "the refund came after the charge was taken back")
}
