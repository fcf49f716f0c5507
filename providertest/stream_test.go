package providertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

// numbers are the sequences of events, as one word.
func numbers(events []pt.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprint(e.Sequence))
	}
	return strings.Join(out, " ")
}

func TestDeliveriesAsScripted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		script []pt.Delivery
		now    string // after four events at one instant
		later  string // an hour after that
	}{
		{"no script", nil, "1 2 3 4", "1 2 3 4"},
		{"on time", []pt.Delivery{pt.OnTime(), {}}, "1 2 3 4", "1 2 3 4"},
		{"twice", []pt.Delivery{pt.OnTime(), pt.Copies(2)}, "1 2 2 3 4", "1 2 2 3 4"},
		{"behind the next", []pt.Delivery{pt.Behind(1)}, "2 1 3 4", "2 1 3 4"},
		{"reversed", []pt.Delivery{pt.Behind(3), pt.Behind(2), pt.Behind(1)}, "4 3 2 1", "4 3 2 1"},
		{"behind what never comes", []pt.Delivery{pt.OnTime(), pt.OnTime(), pt.OnTime(), pt.Behind(1)}, "1 2 3", "1 2 3"},
		{"late", []pt.Delivery{pt.Late(time.Hour), pt.Late(time.Minute)}, "3 4", "3 4 2 1"},
		{"lost", []pt.Delivery{pt.OnTime(), pt.Lost()}, "1 3 4", "1 3 4"},
		{"late and twice", []pt.Delivery{pt.Late(time.Hour).And(pt.Copies(2))}, "2 3 4", "2 3 4 1 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, reads := range []string{"once", "often"} { // reading changes nothing
				o := &pt.Options{Async: true}
				now := at(o)
				p := pt.New(o)
				api := serve(t, p)
				p.ScriptEvents(c.script...)
				var seen []pt.Event
				read := func() {
					more, err := api.Deliveries(t.Context(), len(seen))
					require.NoError(t, err)
					seen = append(seen, more...)
				}
				for _, do := range []func() error{
					func() error { _, err := api.Create(t.Context(), charge("")); return err },
					func() error { return p.Finish("ch_1") },
					func() error { _, err := api.Create(t.Context(), charge("")); return err },
					func() error { return p.Fail("ch_2", "late") },
				} {
					require.NoError(t, do())
					if reads == "often" {
						read()
					}
				}
				read()
				assert.Equal(t, c.now, numbers(seen), "read %s", reads)
				assert.Zero(t, p.ScriptLeft())
				now.add(time.Hour)
				read()
				assert.Equal(t, c.later, numbers(seen), "read %s", reads)
				assert.Equal(t, seen, p.Deliveries(0))
				assert.Len(t, p.Events(), 4)
			}
		})
	}
}

func TestAnEventSaysWhatHappened(t *testing.T) {
	t.Parallel()
	o := &pt.Options{Account: "acct_1"}
	now := at(o)
	p := pt.New(o)
	api := serve(t, p)
	p.Script(pt.WrongAmount(5))
	_, err := api.Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	got, err := api.Deliveries(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, got, 1)
	want := pt.Object{
		ID: "ch_1", Kind: pt.KindCharge, Key: "k1", Reference: "order-17", Account: "acct_1", Amount: 5, Currency: "EUR",
		Status: pt.StatusSucceeded, Sequence: 1, Created: now.Now(),
	}
	assert.Equal(t, pt.Event{ID: "evt_1", Sequence: 1, Type: "charge.succeeded", Created: now.Now(), Object: want}, got[0])
	more, err := api.Deliveries(t.Context(), 1)
	require.NoError(t, err)
	assert.Empty(t, more)
	_, err = api.Deliveries(t.Context(), -1)
	assert.Equal(t, 400, fault(t, err).Status)
}

func TestFlappingLookup(t *testing.T) {
	t.Parallel()
	both(t, nil, func(t *testing.T, p *pt.Provider, api pt.API) {
		_, err := api.Create(t.Context(), charge("k1"))
		require.NoError(t, err)
		script := []pt.Step{pt.OK(), pt.Empty(), pt.OK(), pt.Empty(), pt.Empty(), pt.OK()}
		for name, find := range map[string]func(context.Context) (int, error){
			"reference": func(ctx context.Context) (int, error) {
				found, err := pt.Find(ctx, api, pt.Query{Reference: "order-17"})
				return len(found), err
			},
			"id": func(ctx context.Context) (int, error) {
				if _, err := api.Get(ctx, "ch_1"); err != nil {
					assert.Equal(t, 404, fault(t, err).Status)
					return 0, nil
				}
				return 1, nil
			},
		} {
			p.ScriptLookup(script...)
			for i, s := range script {
				n, err := find(t.Context())
				require.NoError(t, err)
				assert.Equal(t, s.String() == "OK", n == 1, "by %s, lookup %d", name, i+1)
			}
		}
	})
}

func TestPageFailsInAnyWay(t *testing.T) { // IC-48
	t.Parallel()
	both(t, &pt.Options{PageSize: 2}, func(t *testing.T, p *pt.Provider, api pt.API) {
		for range 5 {
			_, err := api.Create(t.Context(), charge(""))
			require.NoError(t, err)
		}
		for page := 1; page <= 3; page++ {
			for status, fails := range map[int]pt.Step{
				429: pt.PageFails(page),
				500: pt.PageFails(page).And(pt.Status(500, "boom")),
				0:   pt.PageFails(page).And(pt.DropReply()),
			} {
				p.ScriptLookup(fails)
				found, err := pt.Find(t.Context(), api, pt.Query{})
				if status == 0 {
					assert.True(t, noReply(api, err), "error is %v", err)
				} else {
					assert.Equal(t, status, fault(t, err).Status)
				}
				assert.Len(t, found, 2*(page-1))
				assert.Zero(t, p.ScriptLeft())
			}
		}
		found, err := pt.Find(t.Context(), api, pt.Query{})
		require.NoError(t, err)
		assert.Len(t, found, 5)
	})
}
