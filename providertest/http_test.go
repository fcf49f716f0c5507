package providertest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

func TestClient(t *testing.T) {
	t.Parallel()
	p := pt.New(keyed())
	c := serve(t, p)
	ctx := t.Context()
	ch, err := c.CreateCharge(ctx, pt.Params{Key: "k1", Reference: "order-17", Account: "a", Amount: 9007199254740993, Currency: "JPY", Extra: map[string]string{"memo": "<x>"}})
	require.NoError(t, err)
	assert.Equal(t, int64(9007199254740993), ch.Amount, "no float64 on the way") // IC-07
	assert.Equal(t, "k1", ch.Key)
	re, err := c.CreateRefund(ctx, ch.ID, pt.Params{Key: "k2", Reference: "refund-1", Account: "a", Amount: 1, Currency: "JPY"})
	require.NoError(t, err)
	_, err = c.VoidCharge(ctx, ch.ID, pt.Params{Key: "k3", Account: "a"})
	assert.Equal(t, pt.CodeNotVoidable, fault(t, err).Code)
	got, err := c.GetCharge(ctx, ch.ID)
	require.NoError(t, err)
	assert.Equal(t, ch, got)
	got, err = c.GetRefund(ctx, re.ID)
	require.NoError(t, err)
	assert.Equal(t, re, got)
	_, err = c.GetCharge(ctx, re.ID)
	assert.Equal(t, 404, fault(t, err).Status)
	found, err := c.FindCharge(ctx, "order-17")
	require.NoError(t, err)
	assert.Empty(t, found, "it is in account a")
	found, err = c.FindRefund(ctx, "refund-1")
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Equal(t, map[string]string{"memo": "<x>"}, p.Requests()[0].Extra)
}

func TestClientSendsABodyAsItIs(t *testing.T) {
	t.Parallel()
	p := pt.New(nil)
	c := serve(t, p)
	r := charge("")
	r.Body = []byte(`{ "currency":"EUR", "amount":5 }`)
	o, err := c.Create(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, int64(5), o.Amount)
	assert.Equal(t, string(r.Body), string(p.Requests()[0].Body))
	for _, bad := range []string{`{"amount":1e400}`, `{"amount":"5"}`, `[`} {
		r.Body = []byte(bad)
		_, err = c.Create(t.Context(), r)
		assert.Equal(t, pt.CodeInvalid, fault(t, err).Code)
	}
}

func TestLostReplyIsAReset(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		p := pt.New(nil)
		s := httptest.NewUnstartedServer(p.Handler())
		if tls {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		p.Script(pt.DropReply())
		_, err := pt.NewClient(s.URL+"/", s.Client()).CreateCharge(t.Context(), pt.Params{Reference: "order-17", Amount: 1, Currency: "EUR"})
		require.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Equal(t, 1, p.Effects("order-17"))
	}
}

func TestTransportResendsOnAUsedConnection(t *testing.T) { // IC-04
	t.Parallel()
	p := pt.New(keyed())
	s := httptest.NewServer(p.Handler())
	t.Cleanup(s.Close)
	c := pt.NewClient(s.URL, s.Client())
	_, err := c.CreateCharge(t.Context(), pt.Params{Key: "k0", Reference: "other", Amount: 1, Currency: "EUR"})
	require.NoError(t, err)
	p.Script(pt.DropReply())
	o, err := c.CreateCharge(t.Context(), pt.Params{Key: "k1", Reference: "order-17", Amount: 1, Currency: "EUR"})
	require.NoError(t, err, "net/http hides the lost reply")
	assert.Equal(t, "ch_2", o.ID)
	reqs := p.Requests()
	require.Len(t, reqs, 3)
	assert.Equal(t, reqs[1].Key, reqs[2].Key)
	assert.Equal(t, reqs[1].Body, reqs[2].Body)
	assert.Equal(t, 1, p.Effects("order-17"))
}

func TestLostReplyOverHTTP2IsAResetStream(t *testing.T) {
	t.Parallel()
	p := pt.New(nil)
	s := httptest.NewUnstartedServer(p.Handler())
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	c := pt.NewClient(s.URL, s.Client())
	p.Script(pt.OK(), pt.DropReply())
	_, err := c.CreateCharge(t.Context(), pt.Params{Amount: 1, Currency: "EUR"})
	require.NoError(t, err)
	_, err = c.CreateCharge(t.Context(), pt.Params{Amount: 1, Currency: "EUR"})
	require.True(t, noReply(c, err), "error is %v", err)
	assert.Len(t, p.Ledger(), 2)
}

func TestErrorPageOfAProxy(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "Fri, 31 Dec 2027 23:59:59 GMT")
		w.WriteHeader(502)
		_, _ = io.WriteString(w, "<html>")
	}))
	t.Cleanup(s.Close)
	_, err := pt.NewClient(s.URL, nil).GetCharge(t.Context(), "ch_1")
	assert.Equal(t, pt.Fault{Status: 502}, fault(t, err))
	assert.Equal(t, "providertest: provider answered 502 ", err.Error())
}

func TestLedgerRoute(t *testing.T) {
	t.Parallel()
	p := pt.New(nil)
	for range 2 {
		_, err := p.Create(t.Context(), charge(""))
		require.NoError(t, err)
	}
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/ledger", nil))
	var out struct {
		Objects    []pt.Object
		Effects    map[string]int
		Duplicates []string
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	assert.Len(t, out.Objects, 2)
	assert.Equal(t, map[string]int{"order-17": 2}, out.Effects)
	assert.Equal(t, []string{"order-17"}, out.Duplicates)
}

func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	o := &pt.Options{Path: path, KeyWindow: time.Hour, Now: func() time.Time { return now }}
	p := pt.New(o)
	p.Script(pt.WrongAmount(1).And(pt.DropReply()), pt.Decline("no_funds"))
	_, err := p.Create(t.Context(), charge("k1"))
	require.ErrorIs(t, err, pt.ErrNoReply)
	_, err = p.Create(t.Context(), charge("k2"))
	require.Error(t, err)
	_, err = p.Create(t.Context(), charge("k3"))
	require.NoError(t, err)
	_, err = p.Create(t.Context(), pt.Request{Kind: pt.KindVoid, Parent: "ch_3", Key: "k4"})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, err = p.Create(t.Context(), charge("k5"))
	assert.Equal(t, pt.CodeStorage, fault(t, err).Code)
	want := p.Objects()

	// The process was killed while it wrote a line.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"records":[{"id":"ch_4"`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	for range 2 { // the second time after a line that follows the cut
		p, err = pt.Open(o)
		require.NoError(t, err)
		assert.Equal(t, want, p.Objects()[:len(want)])
		assert.Equal(t, 2, p.Effects("order-17"))
		got, err := p.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		assert.Equal(t, "ch_1", got.ID)
		assert.Equal(t, int64(1), got.Amount)
		_, err = p.Create(t.Context(), charge("k2"))
		assert.Equal(t, "no_funds", fault(t, err).Code)
		more := charge("k6")
		more.Reference = "order-18"
		got, err = p.Create(t.Context(), more)
		require.NoError(t, err)
		assert.Equal(t, "ch_4", got.ID)
		assert.Greater(t, got.Sequence, want[len(want)-1].Sequence)
		require.NoError(t, p.Close())
	}
	now = now.Add(time.Hour)
	p = pt.New(o)
	_, err = p.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	assert.Equal(t, 3, p.Effects("order-17"), "the window has gone on")

	require.NoError(t, os.WriteFile(path, []byte("nonsense\n"), 0o600))
	_, err = pt.Open(o)
	require.ErrorContains(t, err, "line 1")
	assert.Panics(t, func() { pt.New(&pt.Options{Path: t.TempDir()}) })
}
