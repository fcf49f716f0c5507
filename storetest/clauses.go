package storetest

// clauses repeats the clauses of settle.Store, for the failure that cites one.
// A test compares them with the comment there.
var clauses = map[string]string{
	"S1":  "safe for concurrent use, by many processes where the store is shared.",
	"S2":  "names and keys are compared as bytes; what is stored comes back exactly, 1970 and empty payloads included. Instants come in as whole microseconds UTC. Nil and empty are told apart for payloads; other slices and maps may come back nil.",
	"S3":  "returned records and entries share no memory with the store or with each other.",
	"S4":  "the store's own clock, read at the moment of the step and after any lock wait, turns durations into instants and comes back as Record.AsOf. No instant of a caller decides anything (I13).",
	"S5":  "when ctx is done the method returns soon; what it did is then unknown, never half done. A call whose ctx is done already does nothing and returns an error.",
	"S6":  "an error other than those listed says nothing about what happened (I15). ErrUncommitted means that a lock could not be had and nothing was done.",
	"S7":  "what a nil error reported survives the death of the process and, unless the store says otherwise, loss of power.",
	"S10": "ErrNotFound if none has it. A record that was replaced has lost its intent and key, a released hold its name.",
	"S11": "they are those of the record which Get would return; ErrNotFound if there is none.",
	"S20": "a write with IfVersion 0 creates the record, else it replaces the one whose stored version is IfVersion. The store sets Version to IfVersion+1, UpdatedAt and AsOf to its time, CreatedAt too on creation (later it stays as stored), and Due from DueIn; Keep means Never on creation.",
	"S21": "the stored version differs: a *ConflictError with the zero Index and the record as it is; nothing is written. ErrNotFound if there is no such record.",
	"S22": "IfToken is set and the stored token differs, or its lease has ended: likewise.",
	"S23": "another record has one of the written record's names (Record.Names): a *ConflictError with that index and its owner; nothing is written. The first name in the order of Names counts.",
	"S24": "writes apply in order; a name that an earlier write of c gave up is free, one that a later write gives up is not.",
	"S25": "each write leaves one history entry with the write's version and c.ID; an entry is never changed.",
	"S26": "the same c.ID again, after it was applied, is success: the records as they are now, nothing written, no hook; also for callers that come at the same time.",
	"S27": "c.Hook, if set, takes effect once, inside the step and after the writes, which it sees through its Tx; if it fails or panics nothing is written and the error is a *HookError.",
	"S28": "the records are returned as written, in the order of c.Writes.",
	"S30": "only records of c.Kinds, of no scope in c.Except, whose Due has come, at most c.Limit, earliest first.",
	"S31": "each is handed to one caller only, until its lease ends.",
	"S32": "claiming sets Token, Due = now + Lease, and raises Version; it leaves no entry. The record comes back as it is after that, with AsOf; everything else is unchanged.",
	"S40": "it changes Due only, not the version.",
	"S41": "the answer is ErrClaimLost if the token is empty, not the stored one, or its lease has ended: a dead lease is never revived.",
	"S42": "each claim is answered for itself: nil if it was renewed, however the others fared. A record that somebody else has locked holds up no other; its answer may be ErrUncommitted.",
	"S50": "exactly those that match, after q.After.",
	"S60": "every committed write is there once.",

	// The comment on settle.Tx, which has no number.
	"Tx": "A Tx is a store inside a transaction of the application: what it writes commits with that transaction or not at all.",
}
