package providertest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// Harness says how to get at the adapter under test, at a local provider for it,
// and what its traffic looks like.
type Harness[Req, Res any] struct {
	// Local starts a local provider without effects: an emulator, a fake, or the
	// Provider of this package. Every case starts some of its own; it cleans up with t. Required.
	Local func(t testing.TB) Local
	// Adapter makes the adapter, as in production, but for where it sends to: to w, and
	// to nothing else. Required.
	Adapter func(t testing.TB, w Wire) settle.ProviderAdapter[Req, Res]
	// Request makes sample request n, counted from 1. The local provider must accept each of
	// them, and no two may be alike; the same n gives the same request. Required.
	Request func(n int) Req

	// Key is where a request carries Call.Key. Required if the contract honours keys.
	// Where it honours none, nothing may be there.
	Key Place
	// Reference is where a request carries Call.ID, the own reference. Required if the
	// contract offers a lookup, unless that finds the effect by its key.
	Reference Place
	// Account is where a request names the account; it must be that of the contract.
	// Optional: where the credential alone decides, no suite can see it.
	Account Place
	// Creates tells the requests that may have an effect from those that only ask.
	// Nil: all but GET, HEAD and OPTIONS.
	Creates func(Sent) bool

	// Echo is where replies state amount, currency and account.
	Echo Echo
	// Answers is the table of what the provider answers and what each answer proves. It
	// should have every documented refusal, 409, 401 and 429.
	Answers []Answer
	// PageSize is how many objects the local provider puts on one page of what the lookup
	// reads. Zero: the lookup gets one answer that has no further pages.
	PageSize int
	// Secrets are credentials that the adapter sends, and that no error may show. What
	// requests carry as Authorization is taken as one anyway.
	Secrets []string
	// Skip names cases that the adapter is known not to pass, each with a reason
	// that is printed.
	Skip map[string]string
}

// Local is a provider on this machine. It executes every sample request at once
// and shows its effects to lookups at once: delays are the suite's business.
type Local struct {
	// Handler serves the provider's API. Required.
	Handler http.Handler
	// Effects counts the effects that happened under an own reference (Call.ID). It is
	// the truth that the adapter is held against. Required.
	Effects func(reference string) int
	// Undoes makes an effect that sample request n can undo, and names it as settle
	// would. Required for adapters of compensations, nil for others.
	Undoes func(n int) settle.Effect
}

// Wire is where an adapter under test sends to: a proxy in front of the local
// provider, which records everything and breaks what a case wants broken.
type Wire struct {
	// URL is the base of the provider's API, without a slash at its end.
	URL string
	// Transport takes any request there, whatever host it names: for SDKs with a
	// fixed host. It is no *http.Transport and follows no redirect.
	Transport http.RoundTripper
}

// Answer is one answer of the provider to a create request, and what it proves.
type Answer struct {
	Name   string
	Status int
	Header map[string]string // Content-Type is application/json unless it is here
	Body   string
	// Again gives the answer to a repeat of a request that has had its effect. In Body,
	// {ref} stands for the provider's reference of that effect.
	Again bool
	// Want is what the adapter must make of it. For Unclear an error will do too.
	Want settle.Fact
	// RetryAfter, if set, is how long the adapter must report to have been asked to wait.
	RetryAfter time.Duration
}

// Run decides whether an adapter tells the truth, one subtest for each case, named
// rule/case. It speaks HTTP on the loopback interface and needs no other network. What
// it could not check, for want of something in h, is listed at the end.
func Run[Req, Res any](t *testing.T, h Harness[Req, Res]) {
	t.Helper()
	if h.Local == nil || h.Adapter == nil || h.Request == nil {
		t.Fatal("providertest: Harness.Local, Adapter and Request are required")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Skip)) {
		if !slices.Contains(Cases(), name) {
			t.Errorf("providertest: Harness.Skip names %q, which is no case", name)
		}
	}
	var skipped []string
	for _, c := range allCases() {
		t.Run(c.id(), func(t *testing.T) {
			e := newEnv(t, h)
			if reason := c.reason(e); reason != "" {
				skipped = append(skipped, c.id()+": "+reason)
				t.Skip(reason)
			}
			c.check(t, e)
		})
	}
	if len(skipped) > 0 {
		t.Logf("providertest: NOT checked:\n\t%s", strings.Join(skipped, "\n\t"))
	}
}

// Cases lists the cases by name, e.g. "key/byte_for_byte", in the order in which
// Run runs them.
func Cases() []string {
	var out []string
	for _, c := range allCases() {
		out = append(out, c.id())
	}
	return out
}
