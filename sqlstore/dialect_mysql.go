package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

const (
	// The moment of the expression (S4): UTC_TIMESTAMP is that of the statement's start, before it
	// waited for a lock, and NOW and SYSDATE differ by what has passed since.
	// Those two are local: between them the clocks may have been put forward or back by a multiple of half an hour, which is taken out.
	myNow = `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ` + myWaitBegin + `TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))` + myWaitEnd + `)`

	// The difference between them, brought to between -15 and 15 minutes.
	myWaitBegin, myWaitEnd = `MOD(MOD(`, ` + 900000000, 1800000000) + 1800000000, 1800000000) - 900000000`

	// The moment of the statement, which an index can be searched for. For reads that do not wait.
	myStart = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	myRecord = `o.version, o.token, o.due, o.created_at, o.updated_at, o.body, o.request, o.result, ` + myStart

	// Assignments happen from left to right, each with the values that those before it made.
	// LAST_INSERT_ID brings the instant back with the answer.
	mySet = `updated_at = LAST_INSERT_ID(` + myNow + `), due = CASE WHEN {keep} THEN due ELSE updated_at + {due_in} END,
			write_id_2 = CASE version WHEN 1 THEN {write} ELSE write_id_2 END, entry_2 = CASE version WHEN 1 THEN {entry} ELSE entry_2 END,
			at_2 = CASE version WHEN 1 THEN updated_at ELSE at_2 END, state = {state}, version = version + 1, token = {token},
			account = {account}, ref = {ref}, refs = {refs}, body = {body}, request = {request}, result = {result}`

	// The id of the row that holds a further reference. No operation has it, and no other reference. The parts are parameters of the
	// INSERT itself: in a SELECT or a derived table they would take the connection's character set, and bytes that are none of it be lost.
	myRefID = `CONCAT('ref:', LEFT(SHA2(CONCAT(HEX({account}), ':', HEX({kind}), ':', HEX({ref})), 256), 60))`

	// A batch, in the order of rowParams. MariaDB cuts what is longer than a column here, MySQL refuses it: each is one byte longer, in
	// hexadecimal, than that of the table, which refuses what is left.
	myRows = `JSON_TABLE({rows}, '$[*]' COLUMNS (
		id VARCHAR(130) PATH '$[0]' ERROR ON ERROR, scope VARCHAR(512) PATH '$[1]' ERROR ON ERROR, kind VARCHAR(512) PATH '$[2]' ERROR ON ERROR,
		op_key VARCHAR(512) PATH '$[3]' ERROR ON ERROR, subject VARCHAR(512) PATH '$[4]' ERROR ON ERROR, purpose VARCHAR(512) PATH '$[5]' ERROR ON ERROR,
		retired VARCHAR(130) PATH '$[6]' ERROR ON ERROR, hold VARCHAR(512) PATH '$[7]' ERROR ON ERROR, account VARCHAR(1026) PATH '$[8]' ERROR ON ERROR,
		ref VARCHAR(512) PATH '$[9]' ERROR ON ERROR, refs VARCHAR(34) PATH '$[10]' ERROR ON ERROR, state VARCHAR(66) PATH '$[11]' ERROR ON ERROR,
		was BIGINT PATH '$[12]' ERROR ON ERROR, token VARCHAR(130) PATH '$[13]' ERROR ON ERROR, if_token VARCHAR(130) PATH '$[14]' ERROR ON ERROR,
		due_in BIGINT PATH '$[15]' ERROR ON ERROR, created BIGINT PATH '$[16]' ERROR ON ERROR, body LONGTEXT PATH '$[17]' ERROR ON ERROR,
		request LONGTEXT PATH '$[18]' ERROR ON ERROR, result LONGTEXT PATH '$[19]' ERROR ON ERROR, write_id VARCHAR(130) PATH '$[20]' ERROR ON ERROR,
		entry LONGTEXT PATH '$[21]' ERROR ON ERROR, at BIGINT PATH '$[22]' ERROR ON ERROR)) v`
)

// MySQL is the dialect for MySQL 8.0.1 and later and MariaDB 10.6 and later with InnoDB. It works
// with github.com/go-sql-driver/mysql, with clientFoundRows and interpolateParams on or
// off; for drivers whose errors have neither a field Number nor a method Code() int set
// Options.ErrorCode.
//
// The DSN must set innodb_lock_wait_timeout to a few seconds, e.g.
//
//	user:password@tcp(host:3306)/app?innodb_lock_wait_timeout=5
//
// because the default of 50 is how long a caller would wait for a transaction of its own.
// New refuses tables with triggers: the server then does not tell what a statement did.
func MySQL() Dialect {
	return Dialect{
		name: "mysql",
		dir:  "schema/mysql",
		mark: mark{question: true},

		insert: `INSERT INTO settle_operation (id, scope, kind, op_key, subject, purpose, retired, hold, account, ref, refs, state, version, token,
			created_at, updated_at, due, body, request, result, write_id, entry)
			VALUES ({id}, {scope}, {kind}, NULLIF({key}, ''), {subject}, {purpose}, {retired}, {hold}, {account}, {ref}, {refs}, {state}, 1, {token},
			LAST_INSERT_ID(` + myNow + `), created_at, created_at + {due_in}, {body}, {request}, {result}, {write}, {entry})`,
		update: `UPDATE settle_operation SET ` + mySet + `
			WHERE id = {id} AND version = {was} AND (LENGTH({if_token}) = 0 OR token = {if_token} AND due > ` + myNow + `)
			AND created_at = {created} AND scope = {scope} AND kind = {kind} AND op_key <=> NULLIF({key}, '') AND subject = {subject}
			AND purpose = {purpose} AND retired = {retired} AND hold <=> {hold} AND (refs = '' OR refs = {refs})`,
		rewrite: `UPDATE settle_operation SET scope = {scope}, kind = {kind}, op_key = NULLIF({key}, ''), subject = {subject}, purpose = {purpose},
			retired = {retired}, hold = {hold}, ` + mySet + `
			WHERE id = {id} AND version = {was}`,
		row: `SELECT version, token, due, created_at, body, ` + myNow + ` FROM settle_operation WHERE id = {id} FOR UPDATE`,
		addRef: `INSERT INTO settle_operation (id, scope, kind, subject, purpose, retired, account, ref, refs, state, version, token,
			created_at, updated_at, body, write_id, entry)
			VALUES (` + myRefID + `, '', {kind}, {id}, '', id, {account}, {ref}, '', 'reference', 0, '', 0, 0, '', '', '')`,
		// The owner is named: a reference that went to another row meanwhile stays there.
		dropRef:  `DELETE FROM settle_operation WHERE account = {account} AND kind = {kind} AND ref = {ref} AND subject = {id} AND version = 0`,
		addEntry: `INSERT INTO settle_history (operation, seq, write_id, at, entry) VALUES ({id}, {version}, {write}, {now}, {entry})`,
		getBy: map[string]string{
			"id":  `SELECT ` + myRecord + ` FROM settle_operation o WHERE id = {id} AND version > 0`,
			"key": `SELECT ` + myRecord + ` FROM settle_operation o WHERE scope = {name0} AND kind = {name1} AND op_key = {name2} AND retired = ''`,
			"intent": `SELECT ` + myRecord + ` FROM settle_operation o
				WHERE scope = {name0} AND kind = {name1} AND subject = {name2} AND purpose = {name3} AND retired = ''`,
			"hold": `SELECT ` + myRecord + ` FROM settle_operation o WHERE scope = {name0} AND hold = {name1}`,
			"ref": `SELECT ` + myRecord + ` FROM settle_operation r JOIN settle_operation o ON o.id = CASE r.version WHEN 0 THEN r.subject ELSE r.id END
				WHERE r.account = {name0} AND r.kind = {name1} AND r.ref = {name2}`,
		},
		versionOf: `SELECT version, updated_at, ` + myStart + ` FROM settle_operation WHERE id = {id} AND version > 0`,
		rival: `SELECT ` + myRecord + ` FROM settle_operation o
			WHERE scope = {scope} AND kind = {kind} AND subject = {subject} AND purpose = {purpose} AND retired = '' AND op_key <=> NULLIF({key}, '')
			AND NOT EXISTS (SELECT 1 FROM settle_operation x WHERE x.id = {id})`,
		writeID1: `SELECT write_id FROM settle_operation WHERE id = {id}`,
		writeID2: `SELECT write_id_2 FROM settle_operation WHERE id = {id} AND write_id_2 IS NOT NULL`,
		writeID:  `SELECT write_id FROM settle_history WHERE operation = {id} AND seq = {after}`,
		anyDue:   `SELECT 1 FROM settle_operation o WHERE o.due <= ` + myStart + ` AND o.kind IN ({kinds}){except} LIMIT 1`,
		due: `SELECT o.id, ` + myRecord + ` FROM settle_operation o
			WHERE o.due <= ` + myStart + ` AND o.kind IN ({kinds}){except} ORDER BY o.due, o.id LIMIT {limit} FOR UPDATE SKIP LOCKED`,
		// The old version makes the statement harmless when database/sql repeats it (IC-03).
		claimRow: `UPDATE settle_operation SET token = {token}, due = {due}, version = {version} WHERE id = {id} AND version = {was}`,
		claimed:  `SELECT 1 FROM settle_operation WHERE id = {id} AND token = {token}`,
		lockHeld: `SELECT id, token, due, ` + myNow + ` FROM settle_operation WHERE id IN ({ids}) FOR UPDATE SKIP LOCKED`,
		renewAll: `UPDATE settle_operation SET due = ` + myNow + ` + {due_in} WHERE id IN ({ids})`,
		list:     `SELECT o.id, ` + myRecord + ` FROM settle_operation o WHERE o.version > 0 AND `,
		overdue:  `o.due < ` + myStart + ` - {x}`,
		tally:    tallyOf(myStart, ``, ` WHERE o.version > 0`),
		history: `SELECT 1 AS seq, o.write_id, o.created_at, o.entry FROM settle_operation o WHERE o.id = {id} AND o.version > 0 AND {after} < 1
			UNION ALL SELECT 2, o.write_id_2, o.at_2, o.entry_2 FROM settle_operation o
			WHERE o.id = {id} AND {after} < 2 AND o.write_id_2 IS NOT NULL
			UNION ALL SELECT h.seq, h.write_id, h.at, h.entry FROM settle_history h WHERE h.operation = {id} AND h.seq > {after}
			ORDER BY seq LIMIT {limit}`,
		insertAll: `INSERT INTO settle_operation (id, scope, kind, op_key, subject, purpose, retired, hold, account, ref, refs, state, version, token,
			created_at, updated_at, due, body, request, result, write_id, entry)
			SELECT UNHEX(v.id), UNHEX(v.scope), UNHEX(v.kind), NULLIF(UNHEX(v.op_key), ''), UNHEX(v.subject), UNHEX(v.purpose), UNHEX(v.retired),
			UNHEX(v.hold), UNHEX(v.account), UNHEX(v.ref), UNHEX(v.refs), UNHEX(v.state), 1, UNHEX(v.token), n.now, n.now, n.now + v.due_in,
			UNHEX(v.body), UNHEX(v.request), UNHEX(v.result), UNHEX(v.write_id), UNHEX(v.entry)
			FROM (SELECT ` + myNow + ` AS now) n STRAIGHT_JOIN ` + myRows + ` WHERE TRUE
			ON DUPLICATE KEY UPDATE version = settle_operation.version`,
		// In an update of a join the assignments have no order: none uses a column that another one sets.
		updateAll: `UPDATE (SELECT ` + myNow + ` AS now) n STRAIGHT_JOIN ` + myRows + ` STRAIGHT_JOIN settle_operation o ON o.id = UNHEX(v.id)
			SET o.updated_at = n.now, o.due = n.now + v.due_in,
			o.write_id_2 = CASE v.was WHEN 1 THEN UNHEX(v.write_id) ELSE o.write_id_2 END,
			o.entry_2 = CASE v.was WHEN 1 THEN UNHEX(v.entry) ELSE o.entry_2 END, o.at_2 = CASE v.was WHEN 1 THEN n.now ELSE o.at_2 END,
			o.state = UNHEX(v.state), o.version = v.was + 1, o.token = UNHEX(v.token), o.account = UNHEX(v.account), o.ref = UNHEX(v.ref),
			o.refs = UNHEX(v.refs), o.body = UNHEX(v.body), o.request = UNHEX(v.request), o.result = UNHEX(v.result)
			WHERE o.version = v.was AND (v.if_token = '' OR o.token = UNHEX(v.if_token) AND o.due > ` + myNow + `)
			AND o.created_at = v.created AND o.scope = UNHEX(v.scope) AND o.kind = UNHEX(v.kind) AND o.op_key <=> NULLIF(UNHEX(v.op_key), '')
			AND o.subject = UNHEX(v.subject) AND o.purpose = UNHEX(v.purpose) AND o.retired = UNHEX(v.retired) AND o.hold <=> UNHEX(v.hold)
			AND (o.refs = '' OR o.refs = UNHEX(v.refs))`,
		addEntries: `INSERT INTO settle_history (operation, seq, write_id, at, entry)
			SELECT UNHEX(v.id), v.was + 1, UNHEX(v.write_id), v.at, UNHEX(v.entry) FROM ` + myRows,
		free: `SELECT id, version, write_id, updated_at, due FROM settle_operation WHERE id IN ({ids}) FOR UPDATE SKIP LOCKED`,

		savepoint:  `SAVEPOINT settle`,
		rollbackTo: `ROLLBACK TO SAVEPOINT settle`,
		release:    `RELEASE SAVEPOINT settle`,

		hasSchema: `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'settle_schema'`,
		version:   `SELECT COALESCE(MAX(version), 0) FROM settle_schema`,

		refInRow:    true,
		serverClock: true,
		answer:      answerStamp,
		classify:    myClass,
		check:       myCheck,
		within:      myWithin,
		shape:       myShape,
		migrate:     myMigrate,
	}
}

// https://mariadb.com/kb/en/mariadb-error-codes/, https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
func myClass(err error, code func(error) (int, bool)) class {
	switch n, _ := code(err); n {
	case 1213, 1020: // deadlock; changed since the snapshot
		return stale
	case 1205, 3572: // lock wait timeout; NOWAIT
		return busy
	case 1062: // duplicate entry
		return duplicate
	}
	return other
}

func myCheck(ctx context.Context, _ *sql.DB, conn *sql.Conn, opts *Options) error {
	var flush, syncBinlog, binlog, autocommit int
	var wait, packet int64
	var mode, completion string
	if err := conn.QueryRowContext(ctx, `SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.sync_binlog, @@GLOBAL.log_bin,
		@@SESSION.innodb_lock_wait_timeout, @@SESSION.sql_mode, @@SESSION.autocommit, @@SESSION.completion_type, @@GLOBAL.max_allowed_packet`).
		Scan(&flush, &syncBinlog, &binlog, &wait, &mode, &autocommit, &completion, &packet); err != nil {
		return failed("settings", err)
	}
	switch {
	case opts.AcceptUnsafe:
	case flush != 1:
		return fmt.Errorf("settle/sqlstore: innodb_flush_log_at_trx_commit is %d, so a commit may not survive a crash: "+
			"SET GLOBAL innodb_flush_log_at_trx_commit = 1, or set Options.AcceptUnsafe (I1)", flush)
	case binlog != 0 && syncBinlog != 1:
		return fmt.Errorf("settle/sqlstore: sync_binlog is %d, so a commit may not survive a crash: "+
			"SET GLOBAL sync_binlog = 1, or set Options.AcceptUnsafe (I1)", syncBinlog)
	}
	switch {
	case autocommit != 1:
		return errors.New("settle/sqlstore: autocommit is off, so a statement by itself commits nothing and is gone with its connection (I1): " +
			"take autocommit=0 out of the DSN, init_connect or the server's settings")
	case completion != "NO_CHAIN":
		return fmt.Errorf("settle/sqlstore: completion_type is %s, so a COMMIT begins another transaction or ends the connection: set it to NO_CHAIN", completion)
	case packet < leastPacket:
		return fmt.Errorf("settle/sqlstore: max_allowed_packet is %d bytes, and a request with its result may have %d: set it to 16M", packet, leastPacket)
	case time.Duration(wait)*time.Second > 4*opts.LockWait:
		return fmt.Errorf("settle/sqlstore: innodb_lock_wait_timeout is %d s, which is how long a caller would wait for a transaction of its own: "+
			"add innodb_lock_wait_timeout=5 to the DSN, or set Options.LockWait", wait)
	case !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES"):
		return errors.New("settle/sqlstore: sql_mode is not strict, so what is too long is cut: add STRICT_TRANS_TABLES to it")
	case strings.Contains(mode, "SIMULTANEOUS_ASSIGNMENT"):
		return errors.New("settle/sqlstore: sql_mode has SIMULTANEOUS_ASSIGNMENT, on which the store's updates do not work: take it out")
	}
	return nil
}

// leastPacket is what a statement may take: a request and a result of the largest size, the record, and what escapes add.
const leastPacket = 2*(settle.MaxRequest+settle.MaxResult) + 1<<20

// myWithin finds out whether tx is still a transaction: a deadlock makes the server roll all
// of it back, database/sql does not notice, and every later statement would commit by
// itself (IC-26). A savepoint outlives its statement inside a transaction and only there.
func myWithin(ctx context.Context, tx inside) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT settle`); err != nil {
		return failed("savepoint", err)
	}
	if _, err := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT settle`); err != nil {
		return errors.Join(fmt.Errorf("%w: there is none: the server has rolled it back, or it was never begun", settle.ErrRetryTx), failed("savepoint", err))
	}
	return nil
}

// myMigrate runs each statement by itself, since DDL ends a transaction; they may run twice, at the same time too. Who finds
// that somebody else has just done what it wanted to do looks again what is missing.
func myMigrate(ctx context.Context, conn *sql.Conn, d *Dialect, wait time.Duration) error {
	for began := time.Now(); ; {
		err := d.upgrade(ctx, conn)
		switch n, _ := errorCode(err); n {
		case 1050, 1061, 1091, 1146, 1205, 1213, 1412: // table or key is there, or not; waited too long; deadlock; changed meanwhile
			if time.Since(began) < wait && sleep(ctx, 100*time.Millisecond) == nil {
				continue
			}
		}
		return err
	}
}
