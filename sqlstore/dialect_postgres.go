package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const (
	// The moment of the expression, not of the transaction's start (S4, IC-25).
	pgNow = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	pgParts  = `o.body, o.fixed, o.id, o.scope, o.kind, o.key, o.subject, o.purpose, o.account, o.state`
	pgRecord = `o.version, o.token, o.due, o.created_at, o.updated_at, ` + pgParts + `, o.request, o.result, ` + pgNow

	// Settings of the statement's own transaction, so that they need no session and hold on
	// every connection: how long to wait for a lock, and a commit that survives loss of power
	// (I1). In a transaction of the application release puts its lock timeout back.
	pgSettings = `SELECT set_config('lock_timeout', coalesce({wait}::text, current_setting('lock_timeout')), true),
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

	// What an outcome changes; one reading of the clock for all instants of the row.
	pgSet = `state = {state}, version = o.version + 1, token = {token}, refs = {refs},
			body = {body}, result = {result}::bytea,
			write_id_2 = CASE o.version WHEN 1 THEN {write}::bytea ELSE o.write_id_2 END,
			entry_2 = CASE o.version WHEN 1 THEN {entry}::bytea ELSE o.entry_2 END,
			(updated_at, at_2, due) = (SELECT t.now, CASE o.version WHEN 1 THEN t.now ELSE o.at_2 END,
				CASE WHEN {keep}::boolean THEN o.due ELSE t.now + {due_in}::bigint END FROM (SELECT ` + pgNow + ` AS now OFFSET 0) t)`

	// A batch of creations (was 0) and guarded updates, each parameter an array with one element per
	// change. A table that looks small would be read from end to end, and such a plan is kept while the table
	// grows. So no condition is one that a hash join can use, and that was equals itself, which is no condition,
	// makes the planner expect one row.
	pgFlush = `WITH w AS MATERIALIZED (` + pgSettings + `), v AS MATERIALIZED (
			SELECT v.* FROM w, unnest({id}::text::bytea[], {scope}::text::bytea[], {kind}::text::bytea[], {key}::text::bytea[], {subject}::text::bytea[],
				{purpose}::text::bytea[], {retired}::text::bytea[], {hold}::text::bytea[], {account}::text::bytea[], {ref}::text::bytea[],
				{refs}::text::bytea[], {state}::text::text[], {was}::text::bigint[], {token}::text::bytea[], {if_token}::text::bytea[],
				{due_in}::text::bigint[], {keep}::text::boolean[], {created}::text::bigint[], {fixed}::text::bytea[], {same}::text::bytea[],
				{body}::text::bytea[], {request}::text::bytea[], {result}::text::bytea[], {write}::text::bytea[], {entry}::text::bytea[])
			v (id, scope, kind, key, subject, purpose, retired, hold, account, ref, refs, state, was, token, if_token, due_in, keep, created, fixed, same,
				body, request, result, write, entry) WHERE v.was = v.was + 0
		), t AS MATERIALIZED (SELECT ` + pgNow + ` AS now FROM w), i AS (
			INSERT INTO settle_operation (id, scope, kind, key, subject, purpose, retired, hold, account, refs, state, version, token, due,
				created_at, updated_at, fixed, same, body, request, result, write_id, entry)
			SELECT v.id, v.scope, v.kind, v.key, v.subject, v.purpose, v.retired, v.hold, v.account, v.refs, v.state, 1, v.token, t.now + v.due_in,
				t.now, t.now, v.fixed, v.same, v.body, v.request, v.result, v.write, v.entry FROM v, t WHERE v.was = 0
			ON CONFLICT DO NOTHING RETURNING id, kind, write_id, updated_at, due
		), u AS (
			UPDATE settle_operation o SET state = v.state, version = o.version + 1, token = v.token, refs = v.refs,
				body = v.body, result = v.result,
				write_id_2 = CASE o.version WHEN 1 THEN v.write ELSE o.write_id_2 END,
				entry_2 = CASE o.version WHEN 1 THEN v.entry ELSE o.entry_2 END,
				(updated_at, at_2, due) = (SELECT t.now, CASE o.version WHEN 1 THEN t.now ELSE o.at_2 END,
					CASE WHEN v.keep THEN o.due ELSE t.now + v.due_in END FROM (SELECT ` + pgNow + ` AS now OFFSET 0) t)
			FROM v
			WHERE v.was > 0 AND o.id = ANY (ARRAY[v.id]) AND (length(v.if_token) = 0 OR o.token = v.if_token AND o.due > ` + pgNow + `)
			AND (o.version, o.created_at, o.same) IS NOT DISTINCT FROM (v.was, v.created, v.same)
			AND (o.refs = '' OR o.refs = v.refs)
			AND (v.ref IS NULL OR NOT EXISTS (SELECT 1 FROM settle_reference s
				WHERE s.account = o.account AND s.kind = o.kind AND s.ref = v.ref AND s.operation <> o.id))
			RETURNING o.id, o.kind, v.write, o.updated_at, o.due, o.account, v.ref, v.was, v.entry
		), d0 AS (
			INSERT INTO settle_due (operation, kind, due) SELECT id, kind, due FROM i WHERE due IS NOT NULL
		), d1 AS (
			INSERT INTO settle_due AS d (operation, kind, due) SELECT id, kind, due FROM u WHERE due IS NOT NULL
			ON CONFLICT (operation) DO UPDATE SET due = excluded.due, kind = excluded.kind WHERE (d.due, d.kind) IS DISTINCT FROM (excluded.due, excluded.kind)
		), d2 AS (
			DELETE FROM settle_due d USING u WHERE d.operation = u.id AND u.due IS NULL
		), r AS (
			INSERT INTO settle_reference (account, kind, ref, operation) SELECT u.account, u.kind, u.ref, u.id FROM u
			WHERE u.ref IS NOT NULL AND NOT EXISTS (
				SELECT 1 FROM settle_reference s WHERE s.account = u.account AND s.kind = u.kind AND s.ref = u.ref AND s.operation = u.id)
		), h AS (
			INSERT INTO settle_history (operation, seq, write_id, at, entry) SELECT u.id, u.was + 1, u.write, u.updated_at, u.entry FROM u WHERE u.was > 1
		)
		SELECT id, write_id, updated_at, due FROM i UNION ALL SELECT id, write, updated_at, due FROM u`

	// settle_due follows the row.
	pgDue = `d1 AS (
			INSERT INTO settle_due AS d (operation, kind, due) SELECT {id}::bytea, {kind}::bytea, u.due FROM u WHERE u.due IS NOT NULL
			ON CONFLICT (operation) DO UPDATE SET due = excluded.due, kind = excluded.kind WHERE (d.due, d.kind) IS DISTINCT FROM (excluded.due, excluded.kind)
		), d2 AS (
			DELETE FROM settle_due d USING u WHERE d.operation = {id} AND u.due IS NULL
		)`
)

// PostgreSQL is the dialect for PostgreSQL 12 and later and for databases that speak its
// protocol and SQL. It works with every driver for database/sql whose errors have a
// method SQLState() string: pgx (github.com/jackc/pgx/v5/stdlib) and lib/pq.
//
// A first Execute is two statements, each a transaction of its own. Nothing is kept in a
// session, no advisory lock is taken and nothing listens, so a proxy may hand out another
// session for every transaction: see Options.Unprepared. Every isolation level will do as
// the database's default. Lock timeout and synchronous_commit are set by each
// statement for itself.
func PostgreSQL() Dialect {
	return Dialect{
		name: "postgres",
		dir:  "schema/postgres",
		mark: mark{prefix: "$", cast: "::bytea", short: true},

		packer: newPacker(),

		insert: `WITH w AS MATERIALIZED (` + pgSettings + `), t AS MATERIALIZED (SELECT ` + pgNow + ` AS now FROM w), u AS (
			INSERT INTO settle_operation (id, scope, kind, key, subject, purpose, retired, hold, account, refs, state, version, token, due,
				created_at, updated_at, fixed, same, body, request, result, write_id, entry)
			SELECT {id}::bytea, {scope}::bytea, {kind}::bytea, {key}::bytea, {subject}::bytea, {purpose}::bytea, {retired}::bytea, {hold}::bytea,
				{account}::bytea, {refs}::bytea, {state}::text, 1, {token}::bytea, t.now + {due_in}::bigint,
				t.now, t.now, {fixed}::bytea, {same}::bytea, {body}::bytea, {request}::bytea, {result}::bytea, {write}::bytea, {entry}::bytea FROM t
			ON CONFLICT DO NOTHING RETURNING updated_at, due
		), d AS (
			INSERT INTO settle_due (operation, kind, due) SELECT {id}::bytea, {kind}::bytea, u.due FROM u WHERE u.due IS NOT NULL
		)
		SELECT updated_at, due FROM u`,
		update: `WITH w AS MATERIALIZED (` + pgSettings + `), u AS (
			UPDATE settle_operation o SET ` + pgSet + ` FROM w
			WHERE o.id = {id} AND o.version = {was} AND (length({if_token}::bytea) = 0 OR o.token = {if_token} AND o.due > ` + pgNow + `)
			AND o.created_at = {created} AND o.same = {same} AND (o.refs = '' OR o.refs = {refs})
			RETURNING o.updated_at, o.due
		), ` + pgDue + `, r AS (
			INSERT INTO settle_reference (account, kind, ref, operation) SELECT {account}::bytea, {kind}::bytea, {ref}::bytea, {id}::bytea FROM u
			WHERE {ref}::bytea IS NOT NULL AND NOT EXISTS (
				SELECT 1 FROM settle_reference s WHERE s.account = {account} AND s.kind = {kind} AND s.ref = {ref} AND s.operation = {id})
		), h AS (
			INSERT INTO settle_history (operation, seq, write_id, at, entry)
			SELECT {id}::bytea, {version}::bigint, {write}::bytea, u.updated_at, {entry}::bytea FROM u WHERE {version}::bigint > 2
		)
		SELECT updated_at, due FROM u`,
		rewrite: `WITH u AS (
			UPDATE settle_operation o SET scope = {scope}, kind = {kind}, key = {key}, subject = {subject}, purpose = {purpose},
			retired = {retired}, hold = {hold}::bytea, account = {account}, fixed = {fixed}, same = {same}, request = {request}::bytea, ` + pgSet + `
			WHERE o.id = {id} AND o.version = {was}
			RETURNING o.updated_at, o.due
		), ` + pgDue + `
		SELECT updated_at, due FROM u`,
		row:    `SELECT o.version, o.token, o.due, o.created_at, ` + pgParts + `, ` + pgNow + ` FROM settle_operation o WHERE o.id = {id} FOR UPDATE`,
		addRef: `INSERT INTO settle_reference (account, kind, ref, operation) VALUES ({account}, {kind}, {ref}, {id})`,
		// The owner is named: a reference that went to another row meanwhile stays there.
		dropRef:   `DELETE FROM settle_reference WHERE account = {account} AND kind = {kind} AND ref = {ref} AND operation = {id}`,
		addEntry:  `INSERT INTO settle_history (operation, seq, write_id, at, entry) VALUES ({id}, {version}, {write}, {now}, {entry})`,
		versionOf: `SELECT version, updated_at, ` + pgNow + ` FROM settle_operation WHERE id = {id}`,
		getBy: map[string]string{
			"id": `SELECT ` + pgRecord + ` FROM settle_operation o WHERE id = {id}`,
			"key": `SELECT ` + pgRecord + ` FROM settle_operation o
				WHERE scope = {name0} AND kind = {name1} AND key = {name2} AND key <> '' AND retired = ''`,
			"intent": `SELECT ` + pgRecord + ` FROM settle_operation o
				WHERE scope = {name0} AND kind = {name1} AND subject = {name2} AND purpose = {name3} AND retired = ''`,
			"hold": `SELECT ` + pgRecord + ` FROM settle_operation o WHERE scope = {name0} AND hold = {name1}`,
			"ref": `SELECT ` + pgRecord + ` FROM settle_reference r JOIN settle_operation o ON o.id = r.operation
				WHERE r.account = {name0} AND r.kind = {name1} AND r.ref = {name2}`,
		},
		rival: `SELECT ` + pgRecord + ` FROM settle_operation o
			WHERE scope = {scope} AND kind = {kind} AND subject = {subject} AND purpose = {purpose} AND retired = '' AND key = {key}
			AND NOT EXISTS (SELECT 1 FROM settle_operation x WHERE x.id = {id})`,
		writeID1: `SELECT write_id FROM settle_operation WHERE id = {id}`,
		writeID2: `SELECT write_id_2 FROM settle_operation WHERE id = {id} AND write_id_2 IS NOT NULL`,
		writeID:  `SELECT write_id FROM settle_history WHERE operation = {id} AND seq = {after}`,
		// The row is locked, so that no commit that holds it waits for its entry in settle_due; and
		// looked at again once it is, since it may have been claimed meanwhile. What is due is put in order by itself, and
		// each row is then found by its key: a plan that joins first is made while nothing is due, and kept when much is. Its own limit, more than
		// others can have locked, lets the planner go along the index and stop when enough is claimed, where it would sort all that is due. For the same
		// reason as above settle_due is written by ON CONFLICT, which needs no plan to find a row.
		claimDue: `WITH c AS MATERIALIZED (
			SELECT o.id, d.due FROM (
				SELECT d.operation, d.due FROM settle_due d WHERE d.due <= (SELECT ` + pgNow + `) AND d.kind IN ({kinds})
				ORDER BY d.due LIMIT {limit}::bigint * 16 + 1024
			) d CROSS JOIN LATERAL (
				SELECT o.id FROM settle_operation o WHERE o.id = d.operation AND o.due <= ` + pgNow + `{except} FOR UPDATE SKIP LOCKED
			) o LIMIT {limit}
		), u AS (
			UPDATE settle_operation o SET token = {token}, version = o.version + 1, due = ` + pgNow + ` + {due_in}::bigint
			FROM c WHERE o.id = ANY (ARRAY[c.id])
			RETURNING o.version, o.token, o.due, o.created_at, o.updated_at, ` + pgParts + `, o.request, o.result, o.due - {due_in}::bigint AS now, c.due AS was
		), d AS (
			INSERT INTO settle_due AS d (operation, kind, due) SELECT u.id, u.kind, u.due FROM u
			ON CONFLICT (operation) DO UPDATE SET due = excluded.due
		)
		SELECT o.id, o.version, o.token, o.due, o.created_at, o.updated_at, ` + pgParts + `, o.request, o.result, o.now FROM u o ORDER BY o.was, o.id`,
		claimed: `SELECT o.id, ` + pgRecord + ` FROM settle_due d JOIN settle_operation o ON o.id = d.operation
			WHERE o.token = {token} AND o.due > ` + pgNow,
		// Each row is found by its key and locked by itself: a row that somebody has locked must not hold up
		// the others (S42). The last condition on x is always true, and lets the planner expect few rows: else a plan
		// that was made while the table was small reads all of it. What was not renewed is lost, unless the row says
		// otherwise.
		renewAll: `WITH w AS MATERIALIZED (` + pgSettings + `), h AS MATERIALIZED (
			SELECT v.id, v.token FROM w CROSS JOIN (VALUES {held}) v (id, token)
		), l AS MATERIALIZED (
			SELECT x.id, x.token FROM h CROSS JOIN LATERAL (
				SELECT o.id, o.token FROM settle_operation o WHERE o.id = h.id AND o.token = h.token AND o.due > ` + pgNow + ` LIMIT 1 FOR UPDATE SKIP LOCKED
			) x WHERE x.id = h.id AND x.token = h.token
		), u AS (
			UPDATE settle_operation o SET due = ` + pgNow + ` + {due_in}::bigint FROM l
			WHERE o.id = l.id AND o.token = l.token AND o.due > ` + pgNow + `
			RETURNING o.id, o.kind, o.token, o.due
		), d AS (
			INSERT INTO settle_due AS d (operation, kind, due) SELECT u.id, u.kind, u.due FROM u
			ON CONFLICT (operation) DO UPDATE SET due = excluded.due
		)
		SELECT h.id, h.token, EXISTS (SELECT 1 FROM u WHERE u.id = h.id AND u.token = h.token),
			EXISTS (SELECT 1 FROM settle_operation o WHERE o.id = h.id AND o.token = h.token AND o.due > ` + pgNow + `) FROM h`,
		list:    `SELECT o.id, ` + pgRecord + ` FROM settle_operation o WHERE `,
		overdue: `o.id IN (SELECT operation FROM settle_due WHERE due < ` + pgNow + ` - {x}::bigint)`,
		tally:   tallyOf(pgNow, `::bigint`, ``),
		history: `SELECT 1::bigint, o.write_id, o.created_at, o.entry FROM settle_operation o WHERE o.id = {id} AND {after}::bigint < 1
			UNION ALL SELECT 2, o.write_id_2, o.at_2, o.entry_2 FROM settle_operation o
			WHERE o.id = {id} AND {after}::bigint < 2 AND o.write_id_2 IS NOT NULL
			UNION ALL SELECT h.seq, h.write_id, h.at, h.entry FROM settle_history h WHERE h.operation = {id} AND h.seq > {after}::bigint
			ORDER BY 1 LIMIT {limit}`,
		flush:      pgFlush,
		savepoint:  `SELECT set_config('settle.lock_timeout', current_setting('lock_timeout'), true); SAVEPOINT settle`,
		rollbackTo: `ROLLBACK TO SAVEPOINT settle`,
		release:    `RELEASE SAVEPOINT settle; SELECT set_config('lock_timeout', current_setting('settle.lock_timeout'), true)`,

		hasSchema: `SELECT count(*) FROM pg_catalog.pg_class WHERE relname = 'settle_schema' AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)`,
		version:   `SELECT version FROM settle_schema`,

		serverClock: true,
		sessions:    true,
		answer:      answerRow,
		whole:       true,
		classify:    pgClass,
		check:       pgCheck,
		shape:       pgShape,
		migrate:     pgMigrate,
	}
}

// sqlState finds the five characters of https://www.postgresql.org/docs/current/errcodes-appendix.html.
func sqlState(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

func pgClass(err error, _ func(error) (int, bool)) class {
	switch sqlState(err) {
	case "40001", "40P01": // serialization failure, deadlock
		return stale
	case "55P03": // lock not available
		return busy
	case "23505": // unique violation
		return duplicate
	}
	return other
}

func pgCheck(ctx context.Context, _ *sql.DB, conn *sql.Conn, opts *Options) error {
	var fsync, pages, commit string
	if err := conn.QueryRowContext(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`).
		Scan(&fsync, &pages, &commit); err != nil {
		return failed("settings", err)
	}
	switch {
	case opts.AcceptUnsafe:
	case fsync != "on" || pages != "on":
		return errors.New("settle/sqlstore: the server has fsync or full_page_writes off, so nothing it keeps is safe: " +
			"turn them on in postgresql.conf, or set Options.AcceptUnsafe (I1)")
	case commit == "off":
		return errors.New("settle/sqlstore: synchronous_commit is off, so a commit may not survive a crash: " +
			"ALTER ROLE or DATABASE … SET synchronous_commit = on, or set Options.AcceptUnsafe (I1)")
	}
	return nil
}

// pgMigrate runs what is missing in one transaction. Two processes that create the
// schema at once meet at the table of its version: the second one finds it there.
func pgMigrate(ctx context.Context, conn *sql.Conn, d *Dialect, wait time.Duration) error {
	until := time.Now().Add(wait)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := pgMigrateOnce(ctx, conn, d)
		switch state := sqlState(err); {
		case err == nil:
			return nil
		case state != "23505" && state != "42P07" && state != "42710" && state != "40P01" && state != "40001", time.Now().After(until):
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func pgMigrateOnce(ctx context.Context, conn *sql.Conn, d *Dialect) (err error) {
	if _, err := conn.ExecContext(ctx, `BEGIN`); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			_, err = conn.ExecContext(ctx, `COMMIT`)
		} else if _, undo := conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); undo != nil {
			drop(conn)
		}
	}()
	if have, err := schemaVersion(ctx, conn, *d); err != nil {
		return err
	} else if have > 0 {
		if _, err := conn.ExecContext(ctx, `LOCK TABLE settle_schema IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
	}
	return d.upgrade(ctx, conn)
}
