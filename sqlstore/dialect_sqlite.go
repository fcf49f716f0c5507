package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// The columns of a record, in the order in which scan reads them.
const sqliteRecord = `o.version, o.token, o.due, o.created_at, o.updated_at, o.body, o.request, o.result`

// What a commit by one statement takes for granted: that it begins in time. SQLite
// reads this clock when it has the write lock.
const sqliteInTime = `CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) < {late}`

// SQLite is the dialect for SQLite 3.35 and later in a file in WAL mode.
//
// It works with every driver for database/sql. Errors are understood where the
// driver's have a method Code() int (modernc.org/sqlite); for others set
// Options.ErrorCode, e.g. for github.com/mattn/go-sqlite3
//
//	func(err error) (int, bool) {
//		var e sqlite3.Error
//		ok := errors.As(err, &e)
//		return int(e.ExtendedCode), ok
//	}
//
// Nothing depends on the DSN but the journal mode, which is kept in the file.
// Every writing transaction takes the write lock with its first statement, so
// it never fails by upgrading a read (IC-33), and waits up to
// Options.LockWait; a change of one record without a hook is one statement outside of a
// transaction where every new connection of the pool is durable. PRAGMA synchronous belongs to a connection: the store sets
// it to FULL on each connection of the pool before the first transaction that
// it starts there. See DSN for settings that do the application's own
// transactions good.
func SQLite() Dialect {
	return Dialect{
		name: "sqlite",
		dir:  "schema/sqlite",

		mark: mark{prefix: "?"},

		// An UPDATE that matches no row takes the write lock like any other, waits
		// for it as the driver was told, and leaves no page to write.
		lock: `UPDATE settle_schema SET version = version WHERE 0`,
		insert: `INSERT INTO settle_operation (id, scope, kind, key, subject, purpose, retired, hold, account, ref, refs, state, version, token, due,
			created_at, updated_at, body, request, result, write_id, entry)
			SELECT {id}, {scope}, {kind}, {key}, {subject}, {purpose}, {retired}, {hold}, {account}, {ref}, {refs}, {state}, 1, {token}, {due},
			{now}, {now}, {body}, {request}, {result}, {write}, {entry}
			WHERE ` + sqliteInTime,
		update: `UPDATE settle_operation SET account = {account}, ref = {ref}, refs = {refs}, state = {state}, version = {version}, token = {token},
			due = {due}, updated_at = {now}, body = {body}, request = {request}, result = {result},
			write_id_2 = CASE version WHEN 1 THEN {write} ELSE write_id_2 END, at_2 = CASE version WHEN 1 THEN {now} ELSE at_2 END,
			entry_2 = CASE version WHEN 1 THEN {entry} ELSE entry_2 END
			WHERE id = {id} AND version = {was} AND ({if_token} = x'' OR token = {if_token} AND due > {now})
			AND created_at = {created} AND scope = {scope} AND kind = {kind} AND key = {key} AND subject = {subject} AND purpose = {purpose}
			AND retired = {retired} AND hold IS {hold} AND (refs = x'' OR refs = {refs}) AND ` + sqliteInTime,
		rewrite: `UPDATE settle_operation SET scope = {scope}, kind = {kind}, key = {key}, subject = {subject}, purpose = {purpose},
			retired = {retired}, hold = {hold}, account = {account}, ref = {ref}, refs = {refs}, state = {state}, version = {version},
			token = {token}, due = {due}, updated_at = {now}, body = {body}, request = {request}, result = {result},
			write_id_2 = CASE version WHEN 1 THEN {write} ELSE write_id_2 END, at_2 = CASE version WHEN 1 THEN {now} ELSE at_2 END,
			entry_2 = CASE version WHEN 1 THEN {entry} ELSE entry_2 END
			WHERE id = {id} AND version = {was}`,
		row:    `SELECT version, token, due, created_at, body FROM settle_operation WHERE id = {id}`,
		addRef: `INSERT INTO settle_reference (account, kind, ref, operation) SELECT {account}, {kind}, {ref}, n FROM settle_operation WHERE id = {id}`,
		// The owner is named: a reference that went to another row meanwhile stays there.
		dropRef: `DELETE FROM settle_reference WHERE account = {account} AND kind = {kind} AND ref = {ref}
			AND operation = (SELECT n FROM settle_operation WHERE id = {id})`,
		addEntry: `INSERT INTO settle_history (operation, seq, write_id, at, entry)
			SELECT n, {version}, {write}, {now}, {entry} FROM settle_operation WHERE id = {id}`,
		versionOf: `SELECT version, updated_at FROM settle_operation WHERE id = {id}`,
		getBy: map[string]string{
			"id": `SELECT ` + sqliteRecord + ` FROM settle_operation o WHERE id = {id}`,
			"key": `SELECT ` + sqliteRecord + ` FROM settle_operation o
				WHERE scope = {name0} AND kind = {name1} AND key = {name2} AND key <> x'' AND retired = x''`,
			"intent": `SELECT ` + sqliteRecord + ` FROM settle_operation o
				WHERE scope = {name0} AND kind = {name1} AND subject = {name2} AND purpose = {name3} AND retired = x''`,
			"hold": `SELECT ` + sqliteRecord + ` FROM settle_operation o WHERE scope = {name0} AND hold = {name1}`,
			"ref": `SELECT ` + sqliteRecord + ` FROM settle_reference r JOIN settle_operation o ON o.n = r.operation
				WHERE r.account = {name0} AND r.kind = {name1} AND r.ref = {name2}`,
		},
		taken: `SELECT 1 WHERE EXISTS (SELECT 1 FROM settle_operation WHERE id = {id})
			OR EXISTS (SELECT 1 FROM settle_operation WHERE scope = {scope} AND kind = {kind} AND key = {key} AND key <> x'' AND retired = x'')
			OR EXISTS (SELECT 1 FROM settle_operation WHERE scope = {scope} AND kind = {kind} AND subject = {subject} AND purpose = {purpose}
				AND retired = x'')
			OR EXISTS (SELECT 1 FROM settle_operation WHERE scope = {scope} AND hold = {hold})`,
		writeID1: `SELECT write_id FROM settle_operation WHERE id = {id}`,
		writeID2: `SELECT write_id_2 FROM settle_operation WHERE id = {id} AND write_id_2 IS NOT NULL`,
		writeID: `SELECT h.write_id FROM settle_operation o JOIN settle_history h ON h.operation = o.n
			WHERE o.id = {id} AND h.seq = {after}`,
		anyDue: `SELECT 1 FROM settle_operation o WHERE o.due <= {now} AND o.kind IN ({kinds}){except} LIMIT 1`,
		due: `SELECT o.id, ` + sqliteRecord + ` FROM settle_operation o
			WHERE o.due <= {now} AND o.kind IN ({kinds}){except} ORDER BY o.due, o.n LIMIT {limit}`,
		// The old version makes the statement harmless when database/sql repeats it (IC-03).
		claimRow: `UPDATE settle_operation SET token = {token}, due = {due}, version = {version} WHERE id = {id} AND version = {was}`,
		claimed:  `SELECT 1 FROM settle_operation WHERE id = {id} AND token = {token}`,
		renew:    `UPDATE settle_operation SET due = {due} WHERE id = {id} AND token = {if_token} AND due > {now}`,
		list:     `SELECT o.id, ` + sqliteRecord + ` FROM settle_operation o WHERE `,
		overdue:  `o.n IN (SELECT n FROM settle_operation WHERE due < {x})`,
		tally:    tallyOf(`{now}`, ``, ``),
		history: `SELECT 1, o.write_id, o.created_at, o.entry FROM settle_operation o WHERE o.id = {id} AND {after} < 1
			UNION ALL SELECT 2, o.write_id_2, o.at_2, o.entry_2 FROM settle_operation o
			WHERE o.id = {id} AND {after} < 2 AND o.write_id_2 IS NOT NULL
			UNION ALL SELECT h.seq, h.write_id, h.at, h.entry
			FROM settle_operation o JOIN settle_history h ON h.operation = o.n WHERE o.id = {id} AND h.seq > {after}
			ORDER BY 1 LIMIT {limit}`,
		savepoint:  `SAVEPOINT settle`,
		rollbackTo: `ROLLBACK TO settle`,
		release:    `RELEASE settle`,

		hasSchema: `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'settle_schema'`,
		version:   `SELECT version FROM settle_schema`,

		local:    true,
		triggers: true,
		classify: sqliteClass,
		check:    sqliteCheck,
		shape:    sqliteShape,
		ready:    sqliteReady,
		fit:      sqliteFit,
		durable:  sqliteDurable,
		within:   sqliteWithin,
		migrate:  sqliteMigrate,
	}
}

// DSN returns a data source name for modernc.org/sqlite that suits both the
// store and transactions of the application in the same file: WAL, full
// synchronous, a busy timeout, transactions that take the write lock at their
// start, and a WAL that is copied back when it has 16 MB instead of 4, so that
// pages that change often are copied less often. For github.com/mattn/go-sqlite3 the same is
//
//	file:PATH?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_txlock=immediate
//
// On macOS add &_pragma=fullfsync(1): without it nothing there survives a loss of
// power.
func DSN(path string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	q := url.Values{
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(4000)"},
		"_txlock": {"immediate"},
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Primary and extended result codes of SQLite, https://sqlite.org/rescode.html.
const (
	sqliteBusy         = 5
	sqliteLocked       = 6
	sqliteBusySnapshot = 5 | 2<<8
	sqlitePrimaryKey   = 19 | 6<<8
	sqliteUnique       = 19 | 8<<8
	sqliteRowID        = 19 | 10<<8
)

func sqliteClass(err error, code func(error) (int, bool)) class {
	n, ok := code(err)
	switch {
	case !ok:
		return other
	case n == sqliteBusySnapshot:
		return stale
	case n&0xff == sqliteBusy, n&0xff == sqliteLocked:
		return busy
	case n == sqliteUnique, n == sqlitePrimaryKey, n == sqliteRowID:
		return duplicate
	}
	return other
}

func sqliteCheck(ctx context.Context, db *sql.DB, conn *sql.Conn, opts *Options) error {
	// Without codes the store could not tell "locked" from "broken".
	_, probe := conn.ExecContext(ctx, `SELECT 1 FROM settle_this_table_does_not_exist`)
	if _, ok := opts.ErrorCode(probe); !ok {
		return errors.New("settle/sqlstore: the driver's errors have no Code() int: set Options.ErrorCode")
	}
	var seq int
	var name, file sql.NullString
	if err := conn.QueryRowContext(ctx, `PRAGMA database_list`).Scan(&seq, &name, &file); err != nil {
		return fmt.Errorf("settle/sqlstore: database list: %w", err)
	}
	if file.String == "" {
		return sqliteCheckMemory(ctx, db, opts)
	}
	var mode string
	var level int
	if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
		return fmt.Errorf("settle/sqlstore: journal mode: %w", err)
	}
	if err := conn.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return fmt.Errorf("settle/sqlstore: synchronous: %w", err)
	}
	switch {
	case opts.AcceptUnsafe:
	case !strings.EqualFold(mode, "wal"):
		return fmt.Errorf("settle/sqlstore: journal mode is %s: run PRAGMA journal_mode=WAL once on the file, or EnsureSchema (I1)", mode)
	case level < 2:
		return fmt.Errorf("settle/sqlstore: synchronous is %d, so a commit may not survive a loss of power: "+
			"set _pragma=synchronous(FULL) in the DSN, or Options.AcceptUnsafe (I1)", level)
	}
	return nil
}

// sqliteCheckMemory: nothing survives the process, and unless they share one,
// every connection of the pool has a database of its own.
func sqliteCheckMemory(ctx context.Context, db *sql.DB, opts *Options) error {
	if !opts.AcceptUnsafe {
		return errors.New("settle/sqlstore: the database is in memory and survives nothing: use a file, or Options.AcceptUnsafe (I1)")
	}
	if db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	second, err := db.Conn(ctx) // the first one is still out
	if err != nil {
		return fmt.Errorf("settle/sqlstore: second connection: %w", err)
	}
	defer second.Close()
	var n int
	if err := second.QueryRowContext(ctx, SQLite().hasSchema).Scan(&n); err != nil || n == 0 {
		return errors.Join(errors.New("settle/sqlstore: every connection has an in-memory database of its own: "+
			"call SetMaxOpenConns(1), or use a shared cache"), err)
	}
	return nil
}

func sqliteReady(ctx context.Context, conn *sql.Conn) error {
	var level int
	if err := conn.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return err
	}
	if level >= 2 {
		return nil
	}
	_, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`)
	return err
}

// sqliteFit looks at a connection that nobody has used: it takes what the pool has until
// the pool opens another.
func sqliteFit(ctx context.Context, db *sql.DB) bool {
	if db.Stats().MaxOpenConnections > 0 {
		return false // taking several may be more than there are
	}
	for range 10 {
		before := db.Stats().OpenConnections
		conn, err := db.Conn(ctx)
		if err != nil {
			return false
		}
		defer conn.Close()
		var level int
		if err := conn.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil || level < 2 {
			return false
		}
		if db.Stats().OpenConnections > before {
			return true
		}
	}
	return false
}

func sqliteDurable(ctx context.Context, tx inside) error {
	var level int
	if err := tx.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return err
	}
	if level < 2 {
		return errors.New("settle/sqlstore: the transaction's connection has synchronous below FULL: set it in the DSN (I1)")
	}
	return nil
}

// sqliteMigrate first turns the file to WAL, which is kept in the file and
// cannot be done inside a transaction.
func sqliteMigrate(ctx context.Context, conn *sql.Conn, d *Dialect, wait time.Duration) error {
	until := time.Now().Add(wait)
	retry := func(try func() error) error {
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			err := try()
			if err == nil || ctx.Err() != nil || time.Now().After(until) {
				return err
			}
			// Without a code it may be anything: then wait too.
			if _, ok := errorCode(err); ok && sqliteClass(err, errorCode) == other {
				return err
			}
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
	if err := retry(func() error {
		var mode string
		if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode == "wal" || mode == "memory" {
			return err
		}
		_, err := conn.ExecContext(ctx, `PRAGMA journal_mode = WAL`)
		return err
	}); err != nil {
		return err
	}
	if err := retry(func() error {
		_, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
		return err
	}); err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	if err := d.upgrade(quiet, conn); err != nil {
		if _, undo := conn.ExecContext(quiet, `ROLLBACK`); undo != nil {
			drop(conn)
		}
		return err
	}
	if _, err := conn.ExecContext(quiet, `COMMIT`); err != nil {
		drop(conn)
		return err
	}
	return nil
}

// sqliteWithin finds out whether tx is still a transaction: SQLite rolls back by itself when a
// statement is interrupted or says OR ROLLBACK, database/sql does not notice, and a
// savepoint would then open, and releasing it commit, a transaction of its own. BEGIN fails inside a
// transaction and only there.
func sqliteWithin(ctx context.Context, tx inside) error {
	if _, err := tx.ExecContext(ctx, `BEGIN`); err != nil {
		return nil //nolint:nilerr // as it should be
	}
	if _, err := tx.ExecContext(ctx, `ROLLBACK`); err != nil {
		return failed("commit", err)
	}
	return fmt.Errorf("%w: there is none: SQLite has rolled it back, or it was never begun", settle.ErrRetryTx)
}
