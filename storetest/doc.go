// Package storetest checks that a store keeps the contract of [settle.Store].
// It is the guide for store authors as well: read the numbered clauses on
// settle.Store first, then the cases here, one file for each group.
//
// A store's test needs this much:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB) settle.Store { return mystore.New(emptyDatabase(t)) },
//		})
//	}
//
// A store that wraps another runs the suite like any other; it should pass settle.Local on.
// Wrap is one: it lets any call fail before or after it took effect, hang, or be made twice, for tests
// of what uses a store. It proves nothing about the store; Run does, lost answers included.
// Set Harness.Reopen too: without it nothing is said about durability and
// about two processes on one database. Set Harness.Begin if the store can join a
// transaction of the application. Run with -race, and repeatedly: races are
// provoked, not proven absent.
//
// # What is promised
//
// No false positives: a case fails only if a clause is broken. The suite knows no
// database, compares no error texts, never sleeps, and assumes nothing about
// the speed or the resolution of the store's clock, only that the clock is not set
// back by more than a microsecond while a case runs. Under contention an error
// that the contract does not list is repeated with the same change id (I15), not reported.
//
// False negatives are possible: a store that passes may still be wrong. But no case is idle:
// for each there is a store, broken in one way, that it finds (TestMutants), and go test -v
// lists what finds each of them.
//
// # What a store may rely on
//
// Cases hand in what the core does. Ids, tokens and change ids are lower-case
// UUIDs. Names are valid UTF-8 without control characters, of at most 255 bytes a
// part; they may differ in case, in a trailing space or in Unicode normal form only,
// and differ then. Payloads are any bytes; nil and empty ones differ. Other
// slices and maps may come back nil where they were empty. Times are whole
// microseconds UTC from year 1 to year 9999, the zero time and the epoch among them and apart.
// Amounts compare by value. Durations reach [settle.Forever].
//
// # Advice
//
//   - Compare versions and tokens inside the writing statement, and learn who won
//     by reading back the change id in the history, never from an affected-rows count.
//   - Make names rows or columns of bytes with unique indexes. A default
//     collation that folds case, accents or trailing spaces makes two customers one.
//   - Keep must leave the stored due time as it is: a renewal may have moved it since
//     the caller read the record.
//   - Read the clock in the statement that decides, after its lock wait.
//   - Check a change id before versions: a repeat must not become a conflict with itself.
package storetest
