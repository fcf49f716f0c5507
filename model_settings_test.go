package settle

// settings are explored wholly in every run of the tests. Together they take a few seconds
// with the race detector; keep it so.
var settings = []setting{
	{name: "keys for ever", lease: 1, window: -1, safe: true, attempts: 2, crashes: 1, stumbles: 1},
	{name: "keys for a while", lease: 1, window: 7, attempts: 2, crashes: 1, stalls: 1},
	{name: "keys for a while, refusals are forgotten", lease: 1, window: 7, forgetsDeclines: true, attempts: 2, crashes: 1, stumbles: 1},
	{name: "keys for a while, eventual lookup", lease: 1, window: 8, lookup: Eventual, lag: 1, attempts: 2, crashes: 1},
	{name: "no keys, lookup, undecided", lease: 1, lookup: Authoritative, underway: true, attempts: 2, crashes: 1},
	{name: "no keys, no lookup", lease: 1, attempts: 2, crashes: 1, stumbles: 1, stalls: 1},
	{name: "no keys, a person, canceling", lease: 1, attempts: 2, crashes: 1, person: true, cancels: true, again: true},
	{name: "throttled, SendBefore", lease: 1, window: -1, safe: true, attempts: 2, throttles: true, deadline: true, crashes: 1},
	{name: "events", lease: 1, window: -1, safe: true, lookup: Authoritative, events: true, forgetsDeclines: true, attempts: 1, crashes: 1},
	{name: "events of reversals", lease: 1, window: -1, safe: true, events: true, reverses: true, attempts: 1, crashes: 1},
	{name: "two accounts", lease: 1, window: -1, safe: true, moved: true, attempts: 2, crashes: 1},
	{name: "a refund", lease: 1, window: -1, safe: true, refunds: []int64{0}, cancels: true, attempts: 1, crashes: 1},
	{name: "two refunds of too much", lease: 1, window: -1, safe: true, lookup: Authoritative, refunds: []int64{600, 600}, attempts: 1},
}

// largeSettings take minutes: `make model`.
var largeSettings = []setting{
	{name: "keys for ever, slow processes", lease: 1, window: -1, safe: true, attempts: 2, crashes: 2, stumbles: 2, stalls: 2},
	{name: "keys for ever, three attempts", lease: 1, window: -1, safe: true, attempts: 3, crashes: 1, stumbles: 1},
	{name: "keys for a while, slow processes", lease: 1, window: 7, attempts: 2, crashes: 2, stumbles: 1, stalls: 2},
	{name: "keys for a while, renewals", lease: 2, window: 10, attempts: 2, crashes: 1, stumbles: 1, stalls: 2, renewals: 2},
	{name: "safe keys for a while, very slow processes", lease: 4, window: 8, safe: true, attempts: 2, stumbles: 1, stalls: 8},
	{name: "safe keys for a while, slow beside its renewals", lease: 2, window: 6, safe: true, attempts: 2, stumbles: 1, stalls: 4, renewals: 2},
	{name: "keys for a while, eventual lookup", lease: 1, window: 8, lookup: Eventual, lag: 1, flaky: true, attempts: 2, crashes: 1, stumbles: 1, stalls: 1},
	{name: "no keys, lookup, undecided", lease: 1, lookup: Authoritative, underway: true, flaky: true, attempts: 2, crashes: 1, stumbles: 1, stalls: 1},
	{name: "no keys, a person, canceling", lease: 1, attempts: 2, crashes: 1, stumbles: 1, stalls: 1, person: true, cancels: true, again: true},
	{name: "throttled, SendBefore", lease: 1, window: -1, safe: true, attempts: 2, throttles: true, deadline: true, cancels: true, crashes: 1, stumbles: 1, stalls: 1},
	{name: "events", lease: 1, window: -1, safe: true, lookup: Authoritative, events: true, forgetsDeclines: true, attempts: 2, stumbles: 1},
	{name: "events, undecided, reversals", lease: 1, window: -1, safe: true, events: true, underway: true, reverses: true, attempts: 1, stumbles: 1, crashes: 1},
	{name: "two accounts, lookup", lease: 1, window: -1, safe: true, lookup: Authoritative, moved: true, attempts: 2, crashes: 1, stumbles: 1},
	{name: "a refund, events, reversals", lease: 1, window: -1, safe: true, refunds: []int64{0}, events: true, reverses: true, attempts: 1},
	{name: "two refunds of too much", lease: 1, window: -1, safe: true, lookup: Authoritative, refunds: []int64{600, 600}, attempts: 1, crashes: 1, stumbles: 1},
}

// seed is a design error that a model can be given.
type seed byte

const (
	sound              seed = iota
	leaseIgnored            // a holder whose lease is over still sends
	windowIgnored           // nobody asks whether the provider still knows the key
	unknownCompensated      // a compensation does not look at its parent
	lateFailureWins         // the last report counts
	notFoundProves          // "not found" is proof at once
	accountIgnored          // a process sends to whatever account it is configured for
	reservationIgnored      // what is reserved is not what is sent
	unrecorded              // a request leaves before its attempt is committed
	silenceFails            // a timeout is a refusal
	dueForgotten            // a release leaves no schedule
)

// errorsOf are the design errors, each with a setting in which it does harm, the invariants of
// which one breaks first, and the harm, if another trace shows it.
var errorsOf = []struct {
	name string
	seed seed
	s    setting
	ids  []string
	harm string
}{
	{
		"a holder whose lease is over still sends", leaseIgnored,
		setting{lease: 1, window: 7, attempts: 2, stalls: 3},
		[]string{"I5"},
		"I6: a second effect of one operation",
	},
	{
		"the key window is ignored", windowIgnored,
		setting{lease: 1, window: 7, attempts: 2, crashes: 1},
		[]string{"I6"},
		"I6: a second effect of one operation",
	},
	{
		"an unknown effect is compensated", unknownCompensated,
		setting{lease: 1, window: -1, safe: true, refunds: []int64{0}, attempts: 1, stumbles: 1},
		[]string{"I8"},
		"",
	},
	{
		"a late failure wins over a success", lateFailureWins,
		setting{lease: 1, window: -1, safe: true, events: true, attempts: 1},
		[]string{"I7"},
		"I4: failed, and the effect exists",
	},
	{
		"not found at once is proof", notFoundProves,
		setting{lease: 1, lookup: Authoritative, attempts: 2, stumbles: 1},
		[]string{"I4"},
		"I6: a second effect of one operation",
	},
	{
		"another account is used", accountIgnored,
		setting{lease: 1, window: -1, safe: true, moved: true, attempts: 1},
		[]string{"I2"},
		"",
	},
	{
		"what is reserved is not what is sent", reservationIgnored,
		setting{lease: 1, window: -1, safe: true, refunds: []int64{600, 600}, attempts: 1, stumbles: 1},
		[]string{"I9"},
		"",
	},
	{
		"a request leaves before its record", unrecorded,
		setting{lease: 1, window: -1, safe: true, attempts: 1},
		[]string{"I1"},
		"",
	},
	{
		"silence is failure", silenceFails,
		setting{lease: 1, window: -1, safe: true, attempts: 1, stumbles: 1},
		[]string{"I4"},
		"",
	},
	{
		"a release leaves no schedule", dueForgotten,
		setting{lease: 1, window: -1, safe: true, attempts: 1, stumbles: 1},
		[]string{"I10"},
		"",
	},
}
