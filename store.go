package settle

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Store keeps records. It makes small steps on data atomic and durable, holds
// no rules, never sees a provider, and calls nobody back while it holds a
// transaction, the hook of a Change excepted. Package storetest checks each
// numbered clause.
//
// Clauses that hold for every method:
//
//   - S1: safe for concurrent use, by many processes where the store is shared.
//   - S2: names and keys are compared as bytes; what is stored comes back exactly, 1970
//     and empty payloads included. Instants come in as whole microseconds UTC. Nil and empty
//     are told apart for payloads; other slices and maps may come back nil.
//   - S3: returned records and entries share no memory with the store or with each other.
//   - S4: the store's own clock, read at the moment of the step and after any lock wait,
//     turns durations into instants and comes back as Record.AsOf. No instant of a caller decides anything (I13).
//   - S5: when ctx is done the method returns soon; what it did is then unknown, never
//     half done. A call whose ctx is done already does nothing and returns an error.
//   - S6: an error other than those listed says nothing about what happened (I15).
//     ErrUncommitted means that a lock could not be had and nothing was done.
//   - S7: what a nil error reported survives the death of the process and, unless the
//     store says otherwise, loss of power.
type Store interface {
	// Get returns the record that has the name.
	//
	//   - S10: ErrNotFound if none has it. A record that was replaced has lost its
	//     intent and key, a released hold its name.
	Get(ctx context.Context, by Index) (Record, error)

	// Commit performs c as one step: all of its writes and history entries, or nothing.
	//
	//   - S20: a write with IfVersion 0 creates the record, else it replaces the one whose
	//     stored version is IfVersion. The store sets Version to IfVersion+1, UpdatedAt
	//     and AsOf to its time, CreatedAt too on creation (later it stays as stored), and
	//     Due from DueIn; Keep means Never on creation.
	//   - S21: the stored version differs: a *ConflictError with the zero Index and the
	//     record as it is; nothing is written. ErrNotFound if there is no such record.
	//   - S22: IfToken is set and the stored token differs, or its lease has ended: likewise.
	//   - S23: another record has one of the written record's names (Record.Names): a
	//     *ConflictError with that index and its owner; nothing is written. The first name in the order of Names counts.
	//   - S24: writes apply in order; a name that an earlier write of c gave up is free,
	//     one that a later write gives up is not.
	//   - S25: each write leaves one history entry with the write's version and c.ID; an
	//     entry is never changed.
	//   - S26: the same c.ID again, after it was applied, is success: the records as they
	//     are now, nothing written, no hook; also for callers that come at the same time.
	//   - S27: c.Hook, if set, takes effect once, inside the step and after the writes, which
	//     it sees through its Tx; if it fails or panics nothing is written and the error is a *HookError.
	//   - S28: the records are returned as written, in the order of c.Writes.
	Commit(ctx context.Context, c Change) ([]Record, error)

	// Claim hands out records that are due: each gets the token and a lease.
	//
	//   - S30: only records of c.Kinds, of no scope in c.Except, whose Due has come, at most
	//     c.Limit, earliest first.
	//   - S31: each is handed to one caller only, until its lease ends.
	//   - S32: claiming sets Token, Due = now + Lease, and raises Version; it leaves no entry.
	//     The record comes back as it is after that, with AsOf; everything else is unchanged.
	Claim(ctx context.Context, c Claim) ([]Record, error)

	// Renew makes the lease of each claim in held end at now + lease. The first result has
	// an answer for each, in the order of held; it is nil if the second is an error, which speaks
	// for all of them.
	//
	//   - S40: it changes Due only, not the version.
	//   - S41: the answer is ErrClaimLost if the token is empty, not the stored one, or its
	//     lease has ended: a dead lease is never revived.
	//   - S42: each claim is answered for itself: nil if it was renewed, however the others fared. A
	//     record that somebody else has locked holds up no other; its answer may be ErrUncommitted.
	Renew(ctx context.Context, held []Held, lease time.Duration) ([]error, error)

	// List returns records that match q, in ascending order of ID, at most q.Limit.
	//
	//   - S50: exactly those that match, after q.After.
	List(ctx context.Context, q Query) ([]Record, error)

	// History returns the entries of one operation with Seq > after, ascending, at most limit.
	//
	//   - S60: every committed write is there once.
	History(ctx context.Context, id string, after int64, limit int) ([]Entry, error)
}

// Local is an optional interface of a Store whose reads cost no round trip and whose
// calls wait for nothing but a lock that the store bounds itself: one in memory, or a
// file. Execute then looks before it writes, and passes contexts without a deadline. It
// makes replays cheaper and nothing safer.
type Local interface {
	// LocalReads reports whether that is so of this store.
	LocalReads() bool
}

// Versioner is an optional interface of a Store that tells the version of a record for less than the record. Execute then
// keeps a few settled records in memory, some megabytes at most, and answers repeats from there when the store says that they are
// as they were. It makes replays cheaper and nothing safer. It is not used where Options.Sealer is set. A store that wraps
// another and changes what Get returns must not let the other's Version through.
type Versioner interface {
	// Version returns the record with that id as far as its ID, Version, UpdatedAt and AsOf go. All else is zero.
	//
	//   - S11: they are those of the record which Get would return; ErrNotFound if there is none.
	Version(ctx context.Context, id string) (Record, error)
}

// Tx is a store inside a transaction of the application: what it writes commits
// with that transaction or not at all. A Tx is only good until its transaction ends.
type Tx interface {
	Get(ctx context.Context, by Index) (Record, error)      // as Store.Get, seeing the transaction's own writes
	Commit(ctx context.Context, c Change) ([]Record, error) // as Store.Commit, committed by the transaction's owner; c.Hook must be nil
	// Unwrap returns what the transaction is made of, e.g. *sql.Tx; nil if there is nothing.
	Unwrap() any
}

// Keep and Never are values for Write.DueIn beside durations of zero and more.
const (
	Keep  time.Duration = -1 // Due stays as it is
	Never time.Duration = -2 // Due is cleared
)

// Change is one atomic step of a store.
type Change struct {
	ID     string // random, new for every change: settles what became of it (I15)
	Writes []Write
	// Hook is the application's part of the step; nil for most.
	Hook func(ctx context.Context, tx Tx) error
}

// Write puts one record.
type Write struct {
	Record    Record
	IfVersion int64         // 0 creates
	IfToken   string        // if set, must be the stored token, with a lease that has not ended
	DueIn     time.Duration // from the store's now; or Keep or Never
	Entry     Entry         // Seq, Operation, At and Write are set by the store
}

// Claim asks for due records.
type Claim struct {
	Kinds  []string
	Except []string // scopes that are left where they are; a few at most
	Token  string
	Lease  time.Duration
	Limit  int
}

// Held names a claim: the record, and the token under which it is claimed.
type Held struct{ ID, Token string }

// Query selects records. Zero fields select everything.
type Query struct {
	Scope, Kind, Subject string
	States               []State       // of a Store: as of the last write; of Engine.List: as of now
	Overdue              time.Duration // if set: Due has been in the past for longer than this
	After                string        // an ID
	Limit                int           // zero: of a Store 100, of Engine.List no limit
}

// Index is a name by which a record can be found. No two live records share one.
type Index struct {
	Name  IndexName
	Parts [4]string // unused parts are empty
}

// IndexName says what kind of name an Index is.
type IndexName string

// The index names, in the order in which Names lists them.
const (
	IndexID     IndexName = "id"
	IndexKey    IndexName = "key"
	IndexIntent IndexName = "intent"
	IndexHold   IndexName = "hold"
	IndexRef    IndexName = "ref"
)

// ByID names a record by its id.
func ByID(id string) Index { return Index{Name: IndexID, Parts: [4]string{id}} }

// ByKey names a record by its key.
func ByKey(scope, kind, key string) Index {
	return Index{Name: IndexKey, Parts: [4]string{scope, kind, key}}
}

// ByIntent names a record by its intent.
func ByIntent(scope, kind, subject, purpose string) Index {
	return Index{Name: IndexIntent, Parts: [4]string{scope, kind, subject, purpose}}
}

// ByHold names a record by the hold that it has.
func ByHold(scope, hold string) Index { return Index{Name: IndexHold, Parts: [4]string{scope, hold}} }

// ByRef names a record by a provider's reference.
func ByRef(account, kind, ref string) Index {
	return Index{Name: IndexRef, Parts: [4]string{account, kind, ref}}
}

// Names lists the names that r has: its id; its key, if the application gave one,
// and its intent until it is replaced; its hold until that is released; the references it owns.
func (r *Record) Names() []Index {
	out := make([]Index, 0, 4)
	out = append(out, ByID(r.ID))
	if r.ReplacedBy == "" {
		if r.Key != "" {
			out = append(out, ByKey(r.Scope, r.Kind, r.Key))
		}
		out = append(out, ByIntent(r.Scope, r.Kind, r.Subject, r.Purpose))
	}
	if h := r.HeldName(); h != "" {
		out = append(out, ByHold(r.Scope, h))
	}
	for _, ref := range r.OwnedRefs() {
		out = append(out, ByRef(r.Account, r.Kind, ref))
	}
	return out
}

// HeldName is the hold that r has now, or "".
func (r *Record) HeldName() string {
	if r.HoldFree {
		return ""
	}
	return r.Hold
}

// OwnedRefs lists the provider references of r that no other operation had before it.
func (r *Record) OwnedRefs() []string {
	var out []string
	for _, ref := range r.References {
		if ref.Ref != "" && !ref.Foreign && !slices.Contains(out, ref.Ref) {
			out = append(out, ref.Ref)
		}
	}
	return out
}

// Entry is one line of an operation's history: who or what changed or said
// what. It never holds a payload, a message or a key.
type Entry struct {
	Seq         int64 // the record's version after the write; those of claims by Run are missing
	Operation   string
	Write       string // Change.ID
	At          time.Time
	From, To    State
	Fact        Fact
	Source      Source
	Attempt     int
	Disposition Disposition
	Ref         string
	Code        string
	Actor       string   // who decided: a person, the authenticated caller, or else who approved
	Rule        string   // the decision of the policy that allowed it
	Note        string   // a person's reason and evidence, or a machine word
	Alarms      []string // those that this write raised
}

// Disposition says what an observation did to the state.
type Disposition string

// The dispositions.
const (
	DispositionApplied    Disposition = "applied"    // it moved or confirmed the state
	DispositionSuperseded Disposition = "superseded" // kept, and the state already knew better
	DispositionRevived    Disposition = "revived"    // success after failure
	// DispositionInconclusive: no answer, or an answer that proves nothing.
	DispositionInconclusive Disposition = "inconclusive"
	DispositionControl      Disposition = "control" // no observation: a claim, schedule or decision
)

// ConflictError says which name, or (zero Index) that the version, token or
// lease, stood against a Commit. It matches ErrConflict.
type ConflictError struct {
	Index    Index
	Existing Record
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Index.Name == "" {
		return "settle: record changed or claim lost"
	}
	return "settle: " + string(e.Index.Name) + " belongs to another record"
}

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// HookError wraps what the hook of a Change returned.
type HookError struct{ Err error }

// Error implements error. The text of Err stays out of it (I16).
func (e *HookError) Error() string { return "settle: the hook failed" }

// Unwrap returns the hook's error.
func (e *HookError) Unwrap() error { return e.Err }

// ErrClaimLost is Renew's answer for a claim that its holder has no more.
var ErrClaimLost = errors.New("settle: claim lost")
