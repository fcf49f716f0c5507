package sim

// The seeded simulation plays settle's engines against everything that may go wrong. A seed makes a plan (processes on one store, a provider with a
// random contract that it keeps to the letter, callers, persons, workers that come and go,
// lost and late calls and replies, stalled and killed processes, clocks that jump), and a
// run plays it in a bubble, one step at a time, with the engine's own goroutines. After every step the
// invariants are held against what is really stored, what has really left, and the provider's ledger; at the
// end, when the faults are over and a worker has had time, nothing may be left that is neither settled
// nor in review. A run depends on its plan alone: the same seed, the same trace; and a plan that breaks an
// invariant is shrunk to the actions that it takes. Where a plan has retention, everything is left to grow old then, and
// whoever asked asks again: the same answer, and nothing is sent.
//
// What is left to chance by the engine is taken from it at its edges: the order in which
// goroutines run, since every call waits for its turn; the jitter of a schedule, since the
// store view replaces times of a next look (which decide nothing); the jitter of polling, since each poll is a
// Run of its own. Ids are random, and appear nowhere.
