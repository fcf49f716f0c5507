package sqlstore

import (
	"context"
	"database/sql"
	"time"
)

// Dialect is everything that differs between databases: each statement written
// out, and what errors mean. It is a value; get one from SQLite.
type Dialect struct {
	name string
	dir  string // of the migrations

	// Statements. Names and tokens are bound as bytes, instants as microseconds.
	lock       string // first statement of a writing transaction: takes the write lock, changes nothing
	lockRow    string // the same, returning the columns of row for one id
	row        string // the columns of row for one id, in a transaction that has the lock
	taken      string // whether an id, key, intent or hold has an owner
	insert     string
	update     string // what changes with every write, by n
	update2    string // the same with the entry of version 2
	rename     string // the names too, by n
	addRef     string
	dropRef    string
	addEntry   string
	getBy      map[string]string // by index name: the columns of a record
	created    string            // the write id of one operation's creation
	writeID2   string            // the same of version 2
	writeID    string            // the write id of one operation's entry after it
	anyDue     string            // with {kinds}: whether a row is due
	due        string            // with {kinds}: n and the columns of a record, earliest first
	claim      string
	renew      string
	lease      string // token and due of one id
	claimed    string // version by n and token, to read a claim back
	list       string // up to and including WHERE
	history    string
	savepoint  string
	rollbackTo string
	release    string

	hasSchema string // counts the table settle_schema
	version   string

	// local: reads cost no round trip.
	local bool
	// prepare: statements may be prepared once. Off where a proxy may hand out
	// another session for every transaction (IC-37).
	prepare bool
	// classify says what an error means.
	classify func(err error, code func(error) (int, bool)) class
	// check is run by New on one connection.
	check func(ctx context.Context, db *sql.DB, conn *sql.Conn, opts *Options) error
	// ready makes a connection fit for durable writes, before a transaction.
	ready func(ctx context.Context, conn *sql.Conn) error
	// durable reports whether the connection of a running transaction is fit.
	durable func(ctx context.Context, tx *sql.Tx) error
	// within refuses a transaction of the application that the database has ended by itself.
	within func(ctx context.Context, tx *sql.Tx) error
	// migrate runs apply under a lock that one process can have.
	migrate func(ctx context.Context, conn *sql.Conn, wait time.Duration, apply func(ctx context.Context) error) error
}

// class says what an error means for the step that got it.
type class int

const (
	other     class = iota // nothing is known
	busy                   // somebody else has the lock: the statement did nothing, wait
	stale                  // the transaction must start again from its first statement
	duplicate              // a unique name is taken
)

// String names the dialect.
func (d Dialect) String() string { return d.name }
