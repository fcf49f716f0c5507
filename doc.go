// Package settle performs one business side effect at most once and always ends up
// knowing what became of it: a charge, a refund, a booking, a virtual machine. The
// hard case is not failure but no answer: the provider did the work and the reply was
// lost. settle gives that a state of its own, keeps the operation's identity, asks the
// provider, and compensates only what is confirmed.
//
// # The model
//
// An [Operation] is one intended effect, named by what makes it that operation:
// scope, kind, subject and purpose. Its [Record] is committed, with the attempt in it,
// before the first byte leaves; every request carries the key and the request that
// are stored there. Replies, lookups, events and people add evidence; the [State] is
// computed from the evidence by one function, so that neither order nor repetition
// changes what is concluded. A claim with a lease says who works on it now; the store's
// clock and the record's version decide, never the clock of a process.
//
// # For users
//
//   - [Open] a store, make one [Executor] per kind with [New], call [Executor.Execute].
//     A nil error means confirmed, and nothing else. Every other outcome is an error to
//     branch on with [errors.Is]: [ErrPending], [ErrActionRequired], [ErrReview], [ErrFailed],
//     [ErrCanceled], [ErrCompensated], [ErrConsequence]. Calling again with the same operation is always safe.
//   - [Engine.Run] in one goroutine of each process finishes what no caller waits for.
//   - [ExecutorOptions].OnSuccess is where to ship: in the transaction that makes it
//     succeeded. [Executor.Register] and [Executor.RegisterTx] store now and send later.
//   - [Executor.Compensate] undoes a confirmed effect, [Executor.Undo] in one of several ways; [Executor.Cancel] withdraws what
//     cannot have had one; [Engine.Resolve] records what a person found out,
//     and [Engine.Assign] who is to find out.
//   - [Engine.ReconcileReport] holds a settlement report against what is stored.
//   - [Engine.Get], [Engine.List], [Engine.History] and [Executor.Find] read. A method that
//     returns an [Outcome] gives a verdict; one that returns a Record is a read, and its error
//     says nothing about the effect.
//
// # For adapter authors
//
// [ProviderAdapter], or [Adapter], a contract and three functions: [Contract] states what the provider
// promises, with source and date; [Terms] what it echoes; Submit and Lookup are each one call of
// its SDK and return an [Observation] with one [Fact]. An error means no answer, without
// exception. Package providertest has a provider that misbehaves on request.
//
// # For store authors
//
// [Store] has six methods with numbered clauses; [Change], [Write], [Claim], [Query], [Index] and
// [Entry] are its words, [EncodeRecord] and [DecodeRecord] its format. Package storetest checks a
// store in ten lines; memstore is the reference.
//
// # Invariants
//
// Code, tests and documents cite them by number.
//
//   - I1 Identity first: no request leaves before the record with that attempt is durably committed.
//   - I2 One identity, one key, one request, one account, on every attempt from any process.
//   - I3 Bound request: the same identity with another fingerprint never reaches the provider.
//   - I4 No answer is no evidence: only explicit evidence makes an operation failed.
//   - I5 One live claim: who lost it starts no request, adds no attempt and moves no schedule.
//   - I6 Inside the window: nothing that may have left is sent again unless that is safe.
//   - I7 Evidence merges: order, repetition and source of observations do not matter.
//   - I8 Confirm, then compensate.
//   - I9 Never more than was done.
//   - I10 Nothing is stuck, nothing waits for a caller.
//   - I11 One consequence: the hook's writes commit with the transition or not at all.
//   - I12 Nothing learned is lost.
//   - I13 No clock of ours decides who wins.
//   - I14 Identity outlives data.
//   - I15 The store's silence is ambiguous too.
//   - I16 Secrets stay in.
package settle
