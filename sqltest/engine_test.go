package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// shop is an engine on one file and a provider that counts.
type shop struct {
	t        *testing.T
	path     string
	provider *providertest.Provider
	promise  settle.Contract
}

func newShop(t *testing.T) *shop {
	o := &providertest.Options{KeyWindow: 24 * time.Hour}
	return &shop{t: t, path: file(t), provider: providertest.New(o), promise: providertest.Promise(o)}
}

// charges opens the file with more pragmas, as another process would.
func (s *shop) charges(result string, pragmas ...string) (*settle.Executor[providertest.Payment, string], *sql.DB, func()) {
	s.t.Helper()
	dsn := sqlstore.DSN(s.path)
	for _, p := range pragmas {
		dsn += "&_pragma=" + p
	}
	db, err := openDB(dsn)
	require.NoError(s.t, err)
	require.NoError(s.t, sqlstore.EnsureSchema(context.Background(), db, sqlstore.SQLite()))
	st, err := sqlstore.New(db, sqlstore.SQLite(), &sqlstore.Options{LockWait: time.Second})
	require.NoError(s.t, err)
	e, err := settle.Open(st, nil)
	require.NoError(s.t, err)
	base := providertest.ChargeAdapter(s.provider, s.promise)
	with := func(o settle.Observation[providertest.Receipt], err error) (settle.Observation[string], error) {
		return settle.Observation[string]{Fact: o.Fact, Ref: o.Ref, Terms: o.Terms, Code: o.Code, Result: result}, err
	}
	x, err := settle.New(e, "charge", settle.Adapter[providertest.Payment, string]{
		Promise: s.promise, TermsFunc: base.TermsFunc,
		SubmitFunc: func(ctx context.Context, c *settle.Call[providertest.Payment]) (settle.Observation[string], error) {
			return with(base.Submit(ctx, c))
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[providertest.Payment]) (settle.Observation[string], error) {
			return with(base.Lookup(ctx, c))
		},
	}, nil)
	require.NoError(s.t, err)
	return x, db, func() { _ = st.Close(); _ = db.Close() }
}

func order(invoice string) settle.Operation[providertest.Payment] {
	return settle.Operation[providertest.Payment]{
		Scope: "shop", Subject: "order-1", Purpose: "purchase",
		Request: providertest.Payment{Amount: 1999, Currency: "EUR", Invoice: invoice},
	}
}

// pages is how large the file is now, as a limit for other connections.
func pages(t *testing.T, db *sql.DB) string {
	return fmt.Sprintf("max_page_count(%d)", count(t, db, `PRAGMA page_count`)+2)
}

// TestFullDiskNothingIsSent: what cannot be written down is not sent.
func TestFullDiskNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		_, db, closeFirst := s.charges("")
		limit := pages(t, db)
		closeFirst()
		big := order(strings.Repeat("x", 200_000))
		x, _, closeFull := s.charges("", limit)
		out, err := x.Execute(t.Context(), big)
		require.ErrorIs(t, err, settle.ErrStore)
		require.ErrorContains(t, err, "full")
		require.Equal(t, settle.NextRetry, out.Next)
		require.Zero(t, s.provider.Calls(providertest.OpCreate))
		closeFull()

		x, _, closeLast := s.charges("ok")
		defer closeLast()
		out, err = x.Execute(t.Context(), big)
		require.NoError(t, err)
		require.Equal(t, 1, s.provider.Effects(out.ID))
	})
}

// TestFullDiskAtTheOutcomeNothingIsLost: the disk is full when the answer comes. The caller
// is not told that it failed, and when there is room again the effect is found.
func TestFullDiskAtTheOutcomeNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		_, db, closeFirst := s.charges("")
		limit := pages(t, db)
		closeFirst()
		x, _, closeFull := s.charges(strings.Repeat("r", 200_000), limit)
		out, err := x.Execute(t.Context(), order(""))
		require.ErrorIs(t, err, settle.ErrStore)
		require.ErrorContains(t, err, "full")
		require.NotErrorIs(t, err, settle.ErrFailed)
		require.False(t, out.State.Settled())
		require.Equal(t, 1, s.provider.Effects(out.ID))
		closeFull()

		time.Sleep(time.Minute) // in the bubble: the lease ends
		x, _, closeLast := s.charges("ok")
		defer closeLast()
		out, err = x.Execute(t.Context(), order(""))
		require.NoError(t, err)
		require.Equal(t, 1, s.provider.Effects(out.ID))
		require.Equal(t, 1, s.provider.Calls(providertest.OpCreate))
	})
}

// TestLockedDatabaseNothingIsSent: somebody's transaction holds the file.
func TestLockedDatabaseNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		x, db, closeAll := s.charges("ok")
		defer closeAll()
		tx, err := db.BeginTx(context.Background(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), `CREATE TABLE mine (n INTEGER)`)
		require.NoError(t, err)
		_, err = x.Execute(t.Context(), order(""))
		require.ErrorIs(t, err, settle.ErrUncommitted)
		require.Zero(t, s.provider.Calls(providertest.OpCreate))
		require.NoError(t, tx.Rollback())
		out, err := x.Execute(t.Context(), order(""))
		require.NoError(t, err)
		require.Equal(t, 1, s.provider.Effects(out.ID))
	})
}

// TestCorruptRowNothingIsSent: a record that cannot be read is not taken for a missing one.
func TestCorruptRowNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		x, db, closeAll := s.charges("ok")
		defer closeAll()
		out, err := x.Execute(t.Context(), order(""))
		require.NoError(t, err)
		require.NoError(t, run(db, `UPDATE settle_operation SET body = substr(body, 1, length(body) / 2)`))
		_, err = x.Execute(t.Context(), order(""))
		require.ErrorIs(t, err, settle.ErrCorrupt)
		require.Equal(t, 1, s.provider.Calls(providertest.OpCreate))
		require.Equal(t, 1, s.provider.Effects(out.ID))
		var own *settle.Error
		require.True(t, errors.As(err, &own))
		require.NotEqual(t, settle.NextShowFailure, own.Next())
	})
}
