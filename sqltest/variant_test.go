package sqltest

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
	"github.com/settle-go/settle/storetest"
)

// isolationCases are the cases of the suite whose outcome may depend on the isolation level, on
// how a driver sends statements and reads answers, or on which session a transaction
// gets. A server passes all cases in its usual configuration, by `make test`, and these in the others, by `make test-life`; with
// SETTLE_FULL=1 it passes all of them in each, and in a few configurations more, which differ from two
// others by nothing but the combination.
func isolationCases() []string {
	return []string{
		"S1/one_key", "S1/one_version", "S26/one_change", "S24/swaps",
		"S31/two_handles_claim_storm", "S31/claim_against_write", "S31/ended_lease", "S40/renew",
		"S2/full_updated", "S2/payload_bytes", "S2/payload_nil", "S2/times", "S2/longest_names",
		"S6/commit_lost", "S20/due_kept_after_renew", "S22/lease_ended", "S23/first_name_counts", "S24/freed_name",
		"S27/fails", "S27/sees_writes", "S50/filters", "S60/pages", "Tx/conflict", "Tx/rollback", "Tx/again",
	}
}

func fullRun() bool { return os.Getenv("SETTLE_FULL") != "" }

// conformance runs the suite on two handles, since opening one is a matter of many
// round trips, and empties the tables for every case.
func conformance(t *testing.T, open func(testing.TB) (*sql.DB, *sqlstore.Store), empty string, all bool) {
	t.Helper()
	db, first := open(t)
	_, second := open(t)
	skip := map[string]string{}
	if some := isolationCases(); !all && !fullRun() {
		for _, c := range some {
			if !slices.Contains(storetest.Cases(), c) {
				t.Errorf("the suite has no case %s", c)
			}
		}
		for _, c := range storetest.Cases() {
			if !slices.Contains(some, c) {
				skip[c] = "in the server's usual configuration, or with SETTLE_FULL=1"
			}
		}
	}
	storetest.Run(t, storetest.Harness{
		Open:   func(tb testing.TB) settle.Store { must(tb, run(db, empty)); return first },
		Reopen: func(testing.TB, settle.Store) settle.Store { return second },
		Begin: func(tb testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
			tx, err := db.BeginTx(context.Background(), nil)
			must(tb, err)
			return s.(*sqlstore.Store).In(tx), tx.Commit, tx.Rollback
		},
		Skip: skip,
	})
}

const pgClear = `DELETE FROM settle_operation; DELETE FROM settle_due; DELETE FROM settle_reference; DELETE FROM settle_history`

// TestPostgresConformance: the suite, on drivers, their modes, isolation levels, and behind
// a proxy that gives every transaction another session (IC-37).
func TestPostgresConformance(t *testing.T) {
	unprepared := &sqlstore.Options{Unprepared: true}
	for name, c := range map[string]struct {
		driver, params string
		opts           *sqlstore.Options
		sessions       int // of a pooler; 0: none
		all, rare      bool
	}{
		"pgx":                 {driver: "pgx", all: true},
		"pgx repeatable read": {driver: "pgx", params: "&default_transaction_isolation=repeatable%20read"},
		"pgx serializable":    {driver: "pgx", params: "&default_transaction_isolation=serializable"},
		"pgx exec":            {driver: "pgx", params: "&default_query_exec_mode=exec", opts: unprepared},
		"pgx simple":          {driver: "pgx", params: "&default_query_exec_mode=simple_protocol", opts: unprepared},
		"pgx describe":        {driver: "pgx", params: "&default_query_exec_mode=cache_describe", opts: unprepared, rare: true},
		"pq":                  {driver: "postgres"},
		"pq repeatable read":  {driver: "postgres", params: "&default_transaction_isolation=repeatable%20read", rare: true},
		"pq serializable":     {driver: "postgres", params: "&default_transaction_isolation=serializable", opts: unprepared},
		"pooler, pgx exec":    {driver: "pgx", params: "&default_query_exec_mode=exec", opts: unprepared, sessions: 2},
		"pooler, pgx simple":  {driver: "pgx", params: "&default_query_exec_mode=simple_protocol", opts: unprepared, sessions: 3, rare: true},
		"pooler, pq":          {driver: "postgres", params: "&binary_parameters=yes", opts: unprepared, sessions: 2},
	} {
		if !c.all && !everyWay || c.rare && !fullRun() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgSchema(t)
			if c.sessions > 0 {
				dsn = pooled(t, dsn, c.sessions)
			}
			dsn += c.params
			conformance(t, func(tb testing.TB) (*sql.DB, *sqlstore.Store) { return openPG(tb, c.driver, dsn, c.opts) }, pgClear, c.all)
		})
	}
}

const myClear = `DELETE FROM settle_operation; DELETE FROM settle_history`

// TestMySQLConformance: the suite, with the driver's modes and at each isolation level. The
// usual one is REPEATABLE READ.
func TestMySQLConformance(t *testing.T) {
	variable := mysqlNames(t).isolation
	level := func(name string) func(*mysql.Config) {
		return func(c *mysql.Config) { c.Params[variable] = "'" + name + "'" }
	}
	for name, c := range map[string]struct {
		set  func(*mysql.Config)
		opts *sqlstore.Options

		all, rare bool
	}{
		"plain":          {set: func(*mysql.Config) {}, all: true},
		"found rows":     {set: func(c *mysql.Config) { c.ClientFoundRows = true }},
		"interpolated":   {set: func(c *mysql.Config) { c.InterpolateParams = true }, opts: &sqlstore.Options{Unprepared: true}, rare: true},
		"read committed": {set: level("READ-COMMITTED")},
		"serializable":   {set: level("SERIALIZABLE"), rare: true},
		"interpolated, found rows, serializable": {set: func(c *mysql.Config) {
			c.InterpolateParams, c.ClientFoundRows = true, true
			level("SERIALIZABLE")(c)
		}, opts: &sqlstore.Options{Unprepared: true}},
	} {
		if !c.all && !everyWay || c.rare && !fullRun() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := mysqlDatabase(t)
			if cfg.Params == nil {
				cfg.Params = map[string]string{}
			}
			c.set(cfg)
			cfg.MultiStatements = true // for the test's own emptying of tables
			conformance(t, func(tb testing.TB) (*sql.DB, *sqlstore.Store) { return openMySQL(tb, cfg.FormatDSN(), c.opts) }, myClear, c.all)
		})
	}
}
