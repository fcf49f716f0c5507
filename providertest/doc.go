// Package providertest tests adapters: [Run] decides whether one tells the truth
// about its provider, and [Provider] is a payment provider to test against, for
// adapters and applications alike.
//
// # The suite
//
// [Run] puts a proxy between an adapter under test and a local provider of its
// author's, records what goes over the wire and breaks it in every way a network
// and a provider do: replies lost before and after the effect, time-outs, 5xx,
// conflicts, redirects, bodies that say nothing, pages that fail, wrong amounts. Each
// case belongs to a rule, and a failure prints both. docs/adapter-authors.md
// walks through it.
//
// # The provider
//
// Provider is a fake with a ledger of its own that can be told to misbehave in every
// way a real one does. It serves in process and over HTTP.
//
// The ledger is the oracle. Whatever the caller believes after lost replies,
// crashes and retries, [Provider.Effects] says how often money really moved for
// one of its references, and [Provider.Duplicates] which references it moved
// for more than once:
//
//	p := providertest.New(&providertest.Options{KeyWindow: 24 * time.Hour})
//	p.Script(providertest.DropReply())  // the first charge happens, its reply is lost
//	// … run the code under test …
//	if n := p.Effects("order-17"); n != 1 {
//		t.Errorf("%d effects, want 1", n)
//	}
//
// # How a create request is served
//
// Every request takes the next [Step] of the script (OK when the script is
// empty), in the order of arrival, replays included: step i belongs to
// Requests()[i]. Then, in this order,
//
//  1. the network: [DropRequest] loses it, [ApplyLater] and [ApplyAfter] delay it
//     until after the caller has given up;
//  2. the front door: [Status], [RateLimit], [InFlight], [KeyReused] and
//     [AlreadyExists] answer, and nothing is executed or stored under the key;
//  3. the key: a key known and not expired is answered as Options.Replay says,
//     one in flight as Options.Concurrent says, one with other parameters as
//     Options.Drift says;
//  4. execution of a new request: it may hang first ([HangBefore], [Slow]); then
//     [Decline], [StatusStored], [Processing], [ActionRequired], [SucceedAfter],
//     [FailAfter], [ReverseAfter] or a wrong value ([WrongAmount] and so on) say how
//     it ends, now or days later. A replay skips this;
//  5. the reply: it may hang ([HangAfter]), get lost ([DropReply]), be an error
//     although the effect exists ([StatusAfter]) or be unreadable ([Garbled]).
//
// Steps of different stages combine: Decline("stolen_card").And(DropReply()).
//
// A caller that gives up while its request hangs in stage 4 leaves it at the
// provider, where it is executed when its release channel closes, as real
// providers do. The simulator has no goroutine of its own: a delayed request
// takes effect inside the first later call of any method, before that method
// looks at anything, so no caller can see the difference.
//
// # Events
//
// [Provider.Events] is what happened, in order. [Provider.Deliveries], and GET
// /v1/events, are what a reader gets of it: by [Provider.ScriptEvents] late, twice,
// out of order or never.
//
// # Time
//
// Options.Now is the only clock of ledger, key window and lookup lag. Waiting uses
// channels, contexts and timers, so everything works in a testing/synctest
// bubble. The package has no global state.
package providertest
