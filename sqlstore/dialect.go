package sqlstore

import (
	"context"
	"database/sql"
	"time"
)

// Dialect is everything that differs between databases: each statement written
// out, and what errors mean. It is a value; get one from SQLite, PostgreSQL or MySQL.
type Dialect struct {
	name string
	dir  string // of the migrations
	mark mark

	// packer: a record is kept in parts, packed, and the body does not repeat the columns; see form. Nil: as one.
	packer *packer

	// Statements, with named parameters. Names and tokens are bound as bytes, instants as
	// microseconds. A record is version, token, due, created_at, updated_at, body, where there is a packer the columns of
	// form, request, result, and the database's time where serverClock is set.

	// lock is the first statement of a writing transaction on a database with one write
	// lock: it takes the lock and changes nothing.
	lock string
	// insert writes nothing, or says duplicate, if a name has an owner.
	insert string
	// update is guarded by all that it takes for granted: version, token and lease, unchanged names
	// and references, or a first one. Where it matches nothing the row is read to learn why.
	// It keeps the entry of version 2 and, where whole is set, of later ones.
	update  string
	rewrite string // everything, by id; the row has been read
	row     string // version, token, due, created_at, body (and the columns of form) of one id, locked (and the time)
	addRef  string
	dropRef string
	// addEntry is for versions above 2.
	addEntry string

	getBy     map[string]string // by index name: a record
	versionOf string            // the version of {id} (and the time)
	rival     string            // the record with the intent and key of one that cannot be created, unless its id exists; "" if taken does that
	taken     string            // whether an id, key, intent or hold has an owner; "" if asking does not pay
	writeID1  string            // the write id of one operation's creation
	writeID2  string            // the same of version 2
	writeID   string            // and of version {after}
	anyDue    string            // whether a row is due; "" if claiming finds out as cheaply
	due       string            // id and a record, earliest first
	claimRow  string            // claims one of them
	claimDue  string            // instead of both: claims, and returns id and a record each
	claimed   string            // the ids that have a token
	renew     string            // one claim; "" if renewAll finds out by itself
	lockHeld  string            // instead of renew: id, token and due of {ids}, locked, the locked ones left out, and the time
	renewAll  string            // those of {ids} that lockHeld found; without lockHeld, {held}: id, token, whether renewed, whether still held
	list      string            // id and a record, up to and including WHERE
	overdue   string            // a condition: due before {due}, or for longer than {due_in}
	history   string
	tally     string // counts by kind and state

	// flush is insert and update for many records at once: each parameter but {wait} is the text of an array. It
	// returns id, write id, updated_at and due of those that it wrote. "" if there is no such statement.
	flush string
	// Instead of flush, the statements of a transaction of many records. {rows} is JSON, see rowsOf.
	insertAll  string // creates those whose names are free
	updateAll  string // as update, rows that are locked
	addEntries string
	// free locks the rows of {ids} that nobody else has locked, and returns id, version, write_id, updated_at, due.
	free string

	savepoint, rollbackTo, release string

	hasSchema string // counts the table settle_schema
	version   string

	// local: reads cost no round trip, and one process's writes wait for each other anyway.
	local bool
	// serverClock: the time is the database's and comes back with each statement;
	// otherwise it is the host's, and given to it.
	serverClock bool
	// sessions: proxies that share sessions are usual, and a prepared statement is one session's.
	sessions bool
	answer   answer
	// whole: update keeps every entry and the first reference, so that it is all there is to do.
	whole bool
	// triggers: an update of a row adds the first reference by itself.
	triggers bool
	// refInRow: an operation's row holds its first reference, and rows of their own the others, under one unique index.
	refInRow bool
	// classify says what an error means.
	classify func(err error, code func(error) (int, bool)) class
	// check is run by New on one connection.
	check func(ctx context.Context, db *sql.DB, conn *sql.Conn, opts *Options) error
	// shape is what New expects of the tables.
	shape func() *shape
	// ready makes a connection fit for durable writes, before a transaction; nil if each statement does.
	ready func(ctx context.Context, conn *sql.Conn) error
	// fit reports whether every new connection of db is.
	fit func(ctx context.Context, db *sql.DB) bool
	// durable reports whether the connection of a running transaction is fit; nil as above.
	durable func(ctx context.Context, in inside) error
	// within refuses a transaction of the application that the database has ended by itself; nil
	// where its own statements say so.
	within func(ctx context.Context, in inside) error
	// migrate runs apply for each migration that is missing, under a lock that one process can have.
	migrate func(ctx context.Context, conn *sql.Conn, d *Dialect, wait time.Duration) error
}

// inside is a transaction of the application as it holds it: *sql.Tx, or a *sql.Conn that was
// told BEGIN.
type inside interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// answer is how a writing statement says that it had an effect, and when.
type answer int

const (
	answerCount answer = iota // by the rows it changed
	answerRow                 // by a row: updated_at and due
	answerStamp               // by LAST_INSERT_ID: updated_at
)

// class says what an error means for the step that got it.
type class int

const (
	other     class = iota // nothing is known
	busy                   // somebody else has the lock: the statement did nothing, wait
	stale                  // the transaction must start again from its first statement
	duplicate              // a unique name is taken: the statement did nothing
)

// String names the dialect.
func (d Dialect) String() string { return d.name }
