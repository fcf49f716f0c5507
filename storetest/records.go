package storetest

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// The first and last instants that a record may hold, and others between.
var (
	earliest = time.Time{}.Add(time.Microsecond)
	epoch    = time.Unix(0, 0).UTC()
	moment   = time.Date(2026, 2, 28, 23, 59, 59, 999_999_000, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// text is hard to keep: quotes, backslashes, line ends, what SQL and JSON
// escape, characters of two, three and four bytes, both normal forms.
const text = "Ünïcode 漢字 🧾👩‍🚀 \" ' ` \\ % _ ? $1 :x <b>& \r\n\tend e\u0301 \u00e9 \u2028 \ufffd null NULL"

// amount is made by way of its JSON form, so that the suite needs no decimals.
func amount(value, unit string) settle.Amount {
	var a settle.Amount
	doc, err := json.Marshal(map[string]string{"value": value, "unit": unit})
	if err == nil {
		err = json.Unmarshal(doc, &a)
	}
	if err != nil {
		panic("storetest: no amount: " + value)
	}
	return a
}

func terms() settle.Terms {
	return settle.Terms{
		Account: "acct-7 " + text,
		Amount:  amount("123456789012345678.123456789012345678", "EUR/major"), // 36 digits
		Other:   map[string]string{"descriptor": text, "": "an empty name", "empty": ""},
	}
}

// full returns a record in which every field is set that the store does not
// set itself; ReplacedBy and HoldFree leave it its id and reference as names.
func (e *env) full() settle.Record {
	r := e.record()
	r.Generation = 3
	r.Replaces = e.uuid()
	r.Hold = "order-8472"
	r.Undoes = settle.Undo{Operation: e.uuid(), Ref: "pi_123 Ü", Whole: true}
	r.ProviderKey = "settle-" + strings.Repeat("k", 248)
	r.Fingerprint = settle.Fingerprint{Rule: "v1", Volatile: []string{"/card/cvc", "/trace~1id"}, Sum: strings.Repeat("0f", 32)}
	r.Request = allBytes()
	r.Terms = terms()
	r.KeyWindow = settle.Forever
	r.SendBefore = latest
	r.Approval = &settle.Approval{By: text, At: moment, Until: latest, Fingerprint: strings.Repeat("a", 64), Note: text}
	r.Attempts = []settle.Attempt{
		{N: 1, Start: earliest, End: moment, Fate: settle.FateRefused, Grace: settle.Forever, Code: "card_declined"},
		{N: 2, Start: moment, End: latest, Fate: settle.FateUnderway, Grace: time.Nanosecond, Code: text, Closed: true},
		{N: 3, Start: moment, Grace: 90 * time.Second},
	}
	r.References = []settle.Reference{
		{Ref: "", Rank: settle.RankSucceeded, Mismatch: true},
		{Ref: "pi_full_" + r.ID, Rank: settle.RankReversed, Terms: terms(), TermsAs: settle.RankSucceeded, Mismatch: true, Accepted: true, Foreign: false},
		{Ref: "pi_foreign", Rank: settle.RankDisputed, Terms: settle.Terms{Amount: amount("1e-18", "BTC/major")}, Foreign: true, Owner: e.uuid()},
	}
	r.Progress = &settle.Progress{
		State: settle.StateActionRequired, Action: "https://provider.example/3ds?" + text,
		Sequence: math.MaxInt64, FromLookup: true, Since: moment,
	}
	r.Ledger = []settle.Posting{
		{Operation: e.uuid(), Kind: "refund", Amount: amount("3", "EUR/minor"), Status: settle.PostingWished, Reason: "Grund ß", Whole: true},
		{Ref: "pi_full", External: "re_dashboard Ü", Amount: amount("4", "EUR/minor"), Status: settle.PostingUndone},
		{Operation: e.uuid(), Kind: "refund", Ref: "pi_123", Amount: amount("0.000000000000000001", "EUR/major"), Status: settle.PostingDone},
		{Operation: e.uuid(), Kind: "void", Status: settle.PostingWished},
	}
	r.Result = settle.Payload(`{"id":"pi_123","note":"` + "\x00\xff" + `"}`)
	r.Code = "card_declined"
	r.Message = text
	r.Withdrawn = "customer changed their mind " + text
	r.ReplacedBy = e.uuid()
	r.HoldFree = true
	r.Review = &settle.Review{Reason: "deadline", Owner: text, Since: moment, Deadline: latest, Overdue: true}
	r.ResumedAt = moment
	r.Tries, r.Waits = math.MaxInt32, 7
	r.RetryAt = latest
	r.PrunedAt = moment
	r.Wake = true
	r.Consequence = settle.ConsequenceAside
	r.HookTries = 17
	r.Feed = settle.Feed{Done: 3, Last: math.MaxInt64, State: settle.StateUnknown, From: 2, Row: 9}
	r.State = settle.StateReview
	r.Token = e.uuid()
	return r
}

// allBytes is a payload with every byte in it, NUL first and last.
func allBytes() settle.Payload {
	p := make(settle.Payload, 0, 257)
	for i := range 256 {
		p = append(p, byte(i))
	}
	return append(p, 0)
}

// longest fills 255 bytes, the limit of the core, with characters of four bytes and
// an ending that tells one from another.
func longest(end string) string {
	n := (255 - len(end)) / 4
	return strings.Repeat("😀", n) + strings.Repeat("x", 255-len(end)-4*n) + end
}
