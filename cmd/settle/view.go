package main

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/settle-go/settle"
)

// summary is an operation in a list.
type summary struct {
	ID          string      `json:"operation"`
	Kind        string      `json:"kind"`
	Scope       string      `json:"scope"`
	Subject     string      `json:"subject"`
	Purpose     string      `json:"purpose"`
	State       string      `json:"state"`
	Next        string      `json:"next"`
	Created     time.Time   `json:"created"`
	Updated     time.Time   `json:"updated"`
	Due         *time.Time  `json:"due,omitempty"`
	AsOf        time.Time   `json:"as_of"`
	Claimed     bool        `json:"claimed,omitempty"`
	Review      *reviewView `json:"review,omitempty"`
	Consequence string      `json:"consequence,omitempty"`
	Code        string      `json:"code,omitempty"`
	Alarms      []string    `json:"alarms,omitempty"`
}

type reviewView struct {
	Reason   string    `json:"reason"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Overdue  bool      `json:"overdue,omitempty"`
}

func summarize(r settle.Record) summary {
	v := summary{
		ID: r.ID, Kind: r.Kind, Scope: r.Scope, Subject: r.Subject, Purpose: r.Purpose, State: string(r.State), Next: string(r.Next()),
		Created: r.CreatedAt, Updated: r.UpdatedAt, Due: instant(r.Due), AsOf: r.AsOf, Claimed: r.Claimed(), Consequence: string(r.Consequence), Code: r.Code,
		Alarms: r.Alarms(),
	}
	if x := r.Review; x != nil && r.State == settle.StateReview {
		v.Review = &reviewView{x.Reason, x.Owner, x.Since, x.Deadline, x.Overdue || !x.Deadline.IsZero() && !r.AsOf.Before(x.Deadline)}
	}
	return v
}

// full is all that show tells of an operation. What may hold a request, a result, a key or a
// provider's words has a type of its own, and is there only if it was asked for (I16).
type full struct {
	summary
	Version    int64           `json:"version"`
	Account    string          `json:"account,omitempty"`
	Terms      *termsView      `json:"terms,omitempty"`
	Hold       string          `json:"hold,omitempty"`
	Undoes     *settle.Undo    `json:"undoes,omitempty"`
	Replaces   string          `json:"replaces,omitempty"`
	ReplacedBy string          `json:"replaced_by,omitempty"`
	Withdrawn  string          `json:"withdrawn,omitempty"`
	SendBefore *time.Time      `json:"send_before,omitempty"`
	RetryAt    *time.Time      `json:"retry_at,omitempty"`
	PrunedAt   *time.Time      `json:"pruned_at,omitempty"`
	Tries      int             `json:"tries,omitempty"`
	HookTries  int             `json:"hook_tries,omitempty"`
	Approval   *approvalView   `json:"approval,omitempty"`
	Progress   *progressView   `json:"progress,omitempty"`
	Attempts   []attemptView   `json:"attempts,omitempty"`
	References []referenceView `json:"references,omitempty"`
	Effects    []effectView    `json:"effects,omitempty"`
	Ledger     []postingView   `json:"ledger,omitempty"`
	Hidden     []string        `json:"hidden,omitempty"` // there, and not shown without -payload
	Payload    *payloadView    `json:"payload,omitempty"`
	History    []historyView   `json:"history"`
}

type termsView struct {
	Account string   `json:"account,omitempty"`
	Amount  string   `json:"amount,omitempty"`
	Other   []string `json:"other,omitempty"` // names; the values are in the payload
}

type approvalView struct {
	By    string     `json:"by"`
	At    time.Time  `json:"at"`
	Until *time.Time `json:"until,omitempty"`
	Note  string     `json:"note,omitempty"`
}

type progressView struct {
	State      string    `json:"state"`
	Since      time.Time `json:"since"`
	FromLookup bool      `json:"from_lookup,omitempty"`
}

type attemptView struct {
	N     int        `json:"n"`
	Start time.Time  `json:"start"`
	End   *time.Time `json:"end,omitempty"`
	Quiet *time.Time `json:"quiet,omitempty"` // when it can land no more
	Fate  string     `json:"fate"`
	Code  string     `json:"code,omitempty"`
}

type referenceView struct {
	Ref   string     `json:"ref"`
	Rank  string     `json:"rank"`
	Terms *termsView `json:"terms,omitempty"`
	Notes []string   `json:"notes,omitempty"`
	Owner string     `json:"owner,omitempty"` // the operation that it belongs to, if not to this one
}

type effectView struct {
	Ref       string `json:"ref"`
	Confirmed bool   `json:"confirmed"`
	Amount    string `json:"amount,omitempty"`
	Reserved  string `json:"reserved,omitempty"`
	Returned  string `json:"returned,omitempty"`
	Left      string `json:"left,omitempty"`
}

type postingView struct {
	Operation string `json:"operation,omitempty"`
	External  string `json:"external,omitempty"` // the provider's name of what no operation did
	Kind      string `json:"kind,omitempty"`
	Ref       string `json:"ref,omitempty"`
	Amount    string `json:"amount,omitempty"`
	Status    string `json:"status"`
	Reason    string `json:"reason,omitempty"`
}

type historyView struct {
	Operation   string    `json:"operation"`
	Seq         int64     `json:"seq"`
	At          time.Time `json:"at"`
	From        string    `json:"from,omitempty"`
	To          string    `json:"to"`
	Source      string    `json:"source"`
	Fact        string    `json:"fact,omitempty"`
	Attempt     int       `json:"attempt,omitempty"`
	Disposition string    `json:"disposition,omitempty"`
	Ref         string    `json:"ref,omitempty"`
	Code        string    `json:"code,omitempty"`
	Actor       string    `json:"actor,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Note        string    `json:"note,omitempty"`
	Alarms      []string  `json:"alarms,omitempty"`
}

// payloadView is what I16 keeps out of everything else.
type payloadView struct {
	Key         string            `json:"key,omitempty"`
	ProviderKey string            `json:"provider_key,omitempty"`
	Fingerprint string            `json:"fingerprint,omitempty"`
	Request     json.RawMessage   `json:"request,omitempty"`
	Result      json.RawMessage   `json:"result,omitempty"`
	Message     string            `json:"message,omitempty"`
	Action      string            `json:"action,omitempty"`
	Terms       map[string]string `json:"terms,omitempty"`
	Seen        map[string]string `json:"seen,omitempty"` // terms that were observed, by reference and name
}

func (p *payloadView) names() []string {
	var out []string
	for _, x := range []struct {
		name string
		have bool
	}{
		{"key", p.Key != ""},
		{"provider_key", p.ProviderKey != ""},
		{"fingerprint", p.Fingerprint != ""},
		{"request", p.Request != nil},
		{"result", p.Result != nil},
		{"message", p.Message != ""},
		{"action", p.Action != ""},
		{"terms", len(p.Terms) > 0},
		{"seen", len(p.Seen) > 0},
	} {
		if x.have {
			out = append(out, x.name)
		}
	}
	return out
}

func payloadOf(r settle.Record) *payloadView {
	p := &payloadView{
		Key: r.Key, ProviderKey: r.ProviderKey, Fingerprint: r.Fingerprint.Sum, Request: asJSON(r.Request), Result: asJSON(r.Result),
		Message: legible(r.Message), Terms: r.Terms.Other,
	}
	if r.Progress != nil {
		p.Action = legible(r.Progress.Action)
	}
	for _, x := range r.References {
		for k, v := range x.Terms.Other {
			if p.Seen == nil {
				p.Seen = map[string]string{}
			}
			p.Seen[x.Ref+" "+k] = v
		}
	}
	return p
}

// asJSON is a payload as it is if it is JSON, else in base64 as text.
func asJSON(p settle.Payload) json.RawMessage {
	switch {
	case p == nil:
		return nil
	case p.Sealed():
		return json.RawMessage(strconv.Quote(legible(string(p))))
	case json.Valid(p):
		return json.RawMessage(p)
	}
	return json.RawMessage(strconv.Quote("base64:" + base64.StdEncoding.EncodeToString(p)))
}

func fully(r settle.Record, history []settle.Entry, payload bool) full {
	v := full{
		summary: summarize(r), Version: r.Version, Account: r.Account, Terms: termsOf(r.Terms), Hold: r.Hold, Replaces: r.Replaces, ReplacedBy: r.ReplacedBy,
		Withdrawn: legible(r.Withdrawn), SendBefore: instant(r.SendBefore), RetryAt: instant(r.RetryAt), PrunedAt: instant(r.PrunedAt), Tries: r.Tries, HookTries: r.HookTries,
	}
	if r.Undoes != (settle.Undo{}) {
		v.Undoes = &r.Undoes
	}
	if a := r.Approval; a != nil {
		v.Approval = &approvalView{a.By, a.At, instant(a.Until), legible(a.Note)}
	}
	if p := r.Progress; p != nil {
		v.Progress = &progressView{string(p.State), p.Since, p.FromLookup}
	}
	for _, a := range r.Attempts {
		x := attemptView{N: a.N, Start: a.Start, End: instant(a.End), Fate: string(a.Ended()), Code: a.Code}
		if x.Fate == "" {
			x.Fate = "open"
		}
		if !a.End.IsZero() && a.Ended() == settle.FateOpen {
			x.Quiet = instant(a.End.Add(a.Grace))
		}
		v.Attempts = append(v.Attempts, x)
	}
	for _, x := range r.References {
		ref := referenceView{Ref: x.Ref, Rank: string(x.Rank), Terms: termsOf(x.Terms), Owner: x.Owner}
		if ref.Rank == "" {
			ref.Rank = "known"
		}
		for note, set := range map[string]bool{"mismatch": x.Mismatch, "accepted": x.Accepted, "foreign": x.Foreign} {
			if set {
				ref.Notes = append(ref.Notes, note)
			}
		}
		slices.Sort(ref.Notes)
		v.References = append(v.References, ref)
	}
	for _, x := range r.Effects() {
		v.Effects = append(v.Effects, effectView{x.Ref, x.Confirmed, amount(x.Amount), amount(x.Reserved), amount(x.Returned), amount(x.Left())})
	}
	for _, x := range r.Ledger {
		v.Ledger = append(v.Ledger, postingView{x.Operation, x.External, x.Kind, x.Ref, amount(x.Amount), string(x.Status), x.Reason})
	}
	v.History = make([]historyView, 0, len(history))
	for _, x := range history {
		v.History = append(v.History, told(x))
	}
	if p := payloadOf(r); payload {
		v.Payload = p
	} else {
		v.Hidden = p.names()
	}
	return v
}

func told(x settle.Entry) historyView {
	return historyView{
		x.Operation, x.Seq, x.At, string(x.From), string(x.To), string(x.Source), string(x.Fact), x.Attempt, string(x.Disposition), x.Ref, x.Code,
		x.Actor, x.Rule, legible(x.Note), x.Alarms,
	}
}

func termsOf(t settle.Terms) *termsView {
	if t.IsZero() {
		return nil
	}
	return &termsView{t.Account, amount(t.Amount), slices.Sorted(maps.Keys(t.Other))}
}

func amount(a settle.Amount) string {
	if a.IsZero() {
		return ""
	}
	return a.String()
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// clean keeps what others wrote from steering a terminal: it shows what does not print.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// trimmed is an error's text without the name that is printed before it.
func trimmed(err error) string { return strings.TrimPrefix(err.Error(), "settle: ") }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func stampOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return stamp(*t)
}

// age is a duration as people say it, in two units at most.
func age(d time.Duration) string {
	d = d.Truncate(time.Second)
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h" + strconv.Itoa(int(d%time.Hour/time.Minute)) + "m"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d" + strconv.Itoa(int(d%(24*time.Hour)/time.Hour)) + "h"
}

// or is s, or a dash for nothing.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
