package providertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

func refund(amount int64) pt.Request {
	return pt.Request{Kind: pt.KindRefund, Parent: "ch_1", Reference: fmt.Sprintf("refund-%d", amount), Amount: amount, Currency: "EUR"}
}

func TestRefundsNeverExceedTheCharge(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		_, err := api.Create(t.Context(), charge(""))
		require.NoError(t, err)
		p.Script(pt.Processing())
		_, err = api.Create(t.Context(), refund(1000)) // processing refunds count
		require.NoError(t, err)
		_, err = api.Create(t.Context(), refund(1001))
		f := fault(t, err)
		assert.Equal(t, 402, f.Status)
		assert.Equal(t, pt.CodeAmountExceeds, f.Code)
		_, err = p.RefundByHand("ch_1", 1000)
		assert.Equal(t, pt.CodeAmountExceeds, fault(t, err).Code)
		byHand, err := p.RefundByHand("ch_1", 999)
		require.NoError(t, err)
		assert.Empty(t, byHand.Reference)
		assert.Zero(t, p.Remaining("ch_1"))

		require.NoError(t, p.Fail("re_1", "account_closed"))
		assert.Equal(t, int64(1000), p.Remaining("ch_1"))
		assert.Zero(t, p.Effects("refund-1000"))
		require.NoError(t, p.Reverse(byHand.ID)) // T-20
		assert.Equal(t, int64(1999), p.Remaining("ch_1"))

		wrong := refund(1)
		wrong.Parent = "ch_9"
		_, err = api.Create(t.Context(), wrong)
		assert.Equal(t, 404, fault(t, err).Status)
		wrong.Parent, wrong.Account = "ch_1", "other"
		_, err = api.Create(t.Context(), wrong)
		assert.Equal(t, 404, fault(t, err).Status)
		wrong.Account, wrong.Currency = "", "USD"
		_, err = api.Create(t.Context(), wrong)
		assert.Equal(t, pt.CodeNotRefundable, fault(t, err).Code)
	})
}

func TestVoids(t *testing.T) { // IC-50, T-21
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		void := pt.Request{Kind: pt.KindVoid, Parent: "ch_1", Reference: "void-1"}
		_, err := api.Create(t.Context(), charge(""))
		require.NoError(t, err)
		require.NoError(t, p.Capture("ch_1"))
		_, err = api.Create(t.Context(), void)
		assert.Equal(t, pt.CodeNotVoidable, fault(t, err).Code)
		_, err = api.Create(t.Context(), refund(1999))
		require.NoError(t, err)

		_, err = api.Create(t.Context(), charge(""))
		require.NoError(t, err)
		void.Parent = "ch_2"
		v, err := api.Create(t.Context(), void)
		require.NoError(t, err)
		assert.Equal(t, int64(1999), v.Amount)
		got, err := api.Get(t.Context(), v.ID)
		require.NoError(t, err)
		assert.Equal(t, v, got)
		ch, err := api.Get(t.Context(), "ch_2")
		require.NoError(t, err)
		assert.Equal(t, pt.StatusVoided, ch.Status)
		assert.Equal(t, 2, p.Effects("order-17"), "an undone effect was one")
		_, err = api.Create(t.Context(), void)
		assert.Equal(t, pt.CodeNotVoidable, fault(t, err).Code)
		after := refund(1)
		after.Parent = "ch_2"
		_, err = api.Create(t.Context(), after)
		assert.Equal(t, pt.CodeNotRefundable, fault(t, err).Code)
	})
}

func TestVoidInProgressBlocksRefunds(t *testing.T) {
	t.Parallel()
	p := pt.New(nil)
	_, err := p.Create(t.Context(), charge(""))
	require.NoError(t, err)
	p.Script(pt.Processing())
	_, err = p.Create(t.Context(), pt.Request{Kind: pt.KindVoid, Parent: "ch_1"})
	require.NoError(t, err)
	_, err = p.Create(t.Context(), refund(1))
	assert.Equal(t, pt.CodeAmountExceeds, fault(t, err).Code)
	require.NoError(t, p.Finish("vd_1"))
	assert.Equal(t, pt.StatusVoided, p.Objects()[0].Status)
}

func TestLaterLife(t *testing.T) {
	t.Parallel()
	p := pt.New(&pt.Options{Async: true})
	for range 2 {
		o, err := p.Create(t.Context(), charge(""))
		require.NoError(t, err)
		assert.Equal(t, pt.StatusProcessing, o.Status)
	}
	assert.Zero(t, p.Effects("order-17"))
	assert.Len(t, p.Ledger(), 2)
	require.NoError(t, p.Finish("ch_1"))
	require.NoError(t, p.Fail("ch_2", "no_funds"))
	require.NoError(t, p.Reverse("ch_1"))
	assert.Equal(t, 1, p.Effects("order-17"))
	assert.Len(t, p.Ledger(), 1)
	require.Error(t, p.Finish("ch_1"))
	require.Error(t, p.Fail("ch_2", ""))
	require.Error(t, p.Reverse("ch_2"))
	require.Error(t, p.Capture("ch_2"))
	require.Error(t, p.Finish("ch_3"))

	var types []string
	for i, e := range p.Events() {
		assert.Equal(t, int64(i+1), e.Sequence)
		assert.Equal(t, fmt.Sprintf("evt_%d", i+1), e.ID)
		types = append(types, e.Object.ID+" "+e.Type)
	}
	assert.Equal(t, []string{
		"ch_1 charge.processing", "ch_2 charge.processing", "ch_1 charge.succeeded", "ch_2 charge.failed", "ch_1 charge.reversed",
	}, types)
	assert.Equal(t, int64(5), p.Objects()[0].Sequence)

	a, b := pt.Shuffle(p.Events(), 7, 2), pt.Shuffle(p.Events(), 7, 2)
	assert.Equal(t, a, b)
	assert.Len(t, a, 10)
	assert.NotEqual(t, a, pt.Shuffle(p.Events(), 8, 2))
	assert.ElementsMatch(t, append(p.Events(), p.Events()...), a)
}

func TestLookupLag(t *testing.T) { // IC-47
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pt.New(&pt.Options{LookupLag: time.Minute, Now: func() time.Time { return now }})
	p.Script(pt.Processing())
	_, err := p.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	queries := []pt.Query{{Reference: "order-17"}, {Key: "k1"}, {}}
	for _, wait := range []time.Duration{0, time.Minute - 1, 1} {
		now = now.Add(wait)
		_, err := p.Get(t.Context(), "ch_1")
		require.NoError(t, err)
		for _, q := range queries {
			found, err := pt.Find(t.Context(), p, q)
			require.NoError(t, err)
			assert.Equal(t, wait == 1, len(found) == 1)
		}
	}
	require.NoError(t, p.Finish("ch_1"))
	found, err := pt.Find(t.Context(), p, queries[0])
	require.NoError(t, err)
	assert.Equal(t, pt.StatusSucceeded, found[0].Status, "what is visible is the newest state")
}

func TestPages(t *testing.T) { // IC-48
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		for i := range 250 {
			r := charge("")
			r.Reference = fmt.Sprintf("order-%d", i)
			_, err := p.Create(t.Context(), r)
			require.NoError(t, err)
		}
		page, err := api.List(t.Context(), pt.Query{})
		require.NoError(t, err)
		assert.Len(t, page.Objects, 100)
		assert.Equal(t, "order-249", page.Objects[0].Reference)

		_, err = p.Create(t.Context(), charge("")) // while paging
		require.NoError(t, err)
		next, err := api.List(t.Context(), pt.Query{Cursor: page.Next})
		require.NoError(t, err)
		assert.Equal(t, "order-149", next.Objects[0].Reference)
		last, err := api.List(t.Context(), pt.Query{Cursor: next.Next})
		require.NoError(t, err)
		assert.Len(t, last.Objects, 50)
		assert.Equal(t, "order-0", last.Objects[49].Reference)
		assert.Empty(t, last.Next)

		p.ScriptLookup(pt.PageFails(2))
		found, err := pt.Find(t.Context(), api, pt.Query{})
		assert.Equal(t, 429, fault(t, err).Status)
		assert.Len(t, found, 100)
		assert.Zero(t, p.ScriptLeft())
		found, err = pt.Find(t.Context(), api, pt.Query{})
		require.NoError(t, err)
		assert.Len(t, found, 251)

		_, err = api.List(t.Context(), pt.Query{Cursor: "nonsense"})
		assert.Equal(t, 400, fault(t, err).Status)
	})
}

func TestStepsOfLookups(t *testing.T) {
	t.Parallel()
	for _, step := range []pt.Step{
		pt.Empty(), pt.Status(500, "boom"), pt.RateLimit(time.Second), pt.DropReply(), pt.DropRequest(), pt.Garbled(), pt.PageFails(1),
	} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
				_, err := api.Create(t.Context(), charge("k1"))
				require.NoError(t, err)
				p.ScriptLookup(step)
				found, err := pt.Find(t.Context(), api, pt.Query{Key: "k1"})
				assert.Empty(t, found)
				assert.Equal(t, step.String() == "Empty", err == nil)
				if step.String() == "PageFails(1)" {
					return
				}
				p.ScriptLookup(step)
				_, err = api.Get(t.Context(), "ch_1")
				require.Error(t, err)
				found, err = pt.Find(t.Context(), api, pt.Query{Key: "k1"})
				require.NoError(t, err)
				assert.Len(t, found, 1)
			})
		})
	}
}

func TestHeldLookupAnswersWithWhatItRead(t *testing.T) { // T-34
	t.Parallel()
	p := pt.New(&pt.Options{Async: true})
	_, err := p.Create(t.Context(), charge(""))
	require.NoError(t, err)
	before, after := make(chan struct{}), make(chan struct{})
	p.ScriptLookup(pt.HangBefore(before).And(pt.HangAfter(after)))
	got := make(chan pt.Object)
	go func() { o, _ := p.Get(t.Context(), "ch_1"); got <- o }()
	close(before)
	close(after)
	assert.Equal(t, pt.StatusProcessing, (<-got).Status)
}
