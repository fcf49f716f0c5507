package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

func valueCases() []testCase {
	return []testCase{
		{clause: "S2", name: "full_created", proves: "every field of a new record comes back exactly, by every way of reading", run: fullCreated},
		{clause: "S2", name: "full_updated", proves: "every field that may change comes back exactly after an update", run: fullUpdated},
		{clause: "S2", name: "cleared", proves: "fields that were set can be cleared again", run: cleared},
		{clause: "S2", name: "payload_bytes", proves: "payloads keep every byte, NUL and invalid UTF-8 included", run: payloadBytes},
		{clause: "S2", name: "payload_nil", proves: "a payload that is nil and one that is empty stay apart", run: payloadNil},
		{clause: "S2", name: "payload_large", proves: "a payload of 1 MiB comes back exactly", run: payloadLarge},
		{clause: "S2", name: "text", proves: "text keeps quotes, line ends, normal forms and characters of four bytes", run: texts},
		{clause: "S2", name: "times", proves: "times from year 1 to year 9999 keep their microsecond, in UTC", run: times},
		{clause: "S2", name: "time_epoch", proves: "1970-01-01 00:00 is a time, not the absence of one", run: timeEpoch},
		{clause: "S2", name: "amounts", proves: "amounts keep 36 digits and 18 places", run: amounts},
		{clause: "S2", name: "long_lists", proves: "a record keeps hundreds of attempts, references and postings in order", run: longLists},
		{clause: "S3", name: "get", proves: "changing what Get returned changes nothing stored", run: copiesGet},
		{clause: "S3", name: "commit", proves: "changing what Commit took or returned changes nothing stored", run: copiesCommit},
		{clause: "S3", name: "conflict", proves: "changing a conflict's Existing changes nothing stored", run: copiesConflict},
		{clause: "S3", name: "claim", proves: "changing what Claim returned changes nothing stored", run: copiesClaim},
		{clause: "S3", name: "list", proves: "changing what List returned changes nothing stored", run: copiesList},
		{clause: "S3", name: "history", proves: "changing what History returned, or the entry that was handed in, changes nothing stored", run: copiesHistory},
		{clause: "S3", name: "each_other", proves: "two answers share no memory", run: copiesEachOther},
		{clause: "S4", name: "clock", proves: "AsOf is the time of the call and moves on, whatever was written", run: clock},
	}
}

// everywhere checks that r comes back exactly by every way of reading.
func (e *env) everywhere(t tester, r settle.Record) {
	t.Helper()
	var last settle.IndexName
	for _, by := range r.Names() {
		if e.owns(t, by, r.ID); by.Name != last { // there may be hundreds of references
			same(t, "Get by "+name(by), e.get(t, by), r)
		}
		last = by.Name
	}
	found := false
	for _, got := range e.list(t, settle.Query{Scope: r.Scope, Kind: r.Kind, Subject: r.Subject}) {
		if got.ID == r.ID {
			found = true
			same(t, "List", got, r)
		}
	}
	if !found {
		t.Errorf("List does not show the record")
	}
}

// written is what r must be after the write that returned got.
func written(r, got settle.Record) settle.Record {
	r.Version, r.CreatedAt, r.UpdatedAt, r.AsOf, r.Due = got.Version, got.CreatedAt, got.UpdatedAt, got.AsOf, got.Due
	return r
}

// keeps creates r and checks that it comes back exactly.
func (e *env) keeps(t tester, r settle.Record) settle.Record {
	t.Helper()
	got := e.commit(t, create(r.Clone()))[0]
	same(t, "the returned record", got, written(r, got))
	e.everywhere(t, written(r, got))
	return got
}

func fullCreated(t tester, e *env) {
	e.keeps(t, e.full())
	live := e.full()
	live.ReplacedBy, live.HoldFree = "", false
	e.keeps(t, live)
}

func fullUpdated(t tester, e *env) {
	r := e.keeps(t, e.identity(e.full()))
	full := e.full()
	next := full
	// The identity stays.
	next.ID, next.Scope, next.Kind, next.Key, next.Subject, next.Purpose = r.ID, r.Scope, r.Kind, r.Key, r.Subject, r.Purpose
	next.Generation, next.Replaces, next.Hold, next.Undoes, next.ProviderKey = r.Generation, r.Replaces, r.Hold, r.Undoes, r.ProviderKey
	next.Account, next.Fingerprint, next.Terms, next.KeyWindow = r.Account, r.Fingerprint, r.Terms, r.KeyWindow
	next.SendBefore, next.Approval, next.Version = r.SendBefore, r.Approval, r.Version
	got := e.commit(t, dueIn(update(next.Clone()), time.Hour))[0]
	same(t, "the returned record", got, written(next, got))
	e.everywhere(t, written(next, got))
}

// identity returns r as it is when it is new: without evidence and decisions.
func (e *env) identity(r settle.Record) settle.Record {
	r.Attempts, r.References, r.Progress, r.Ledger, r.Result = nil, nil, nil, nil, nil
	r.Code, r.Message, r.Withdrawn, r.ReplacedBy, r.HoldFree, r.Review = "", "", "", "", false, nil
	r.ResumedAt, r.Tries, r.RetryAt, r.Wake, r.Token = time.Time{}, 0, time.Time{}, false, ""
	r.Consequence, r.HookTries, r.State = settle.ConsequenceNone, 0, settle.StateCreated
	return r
}

func cleared(t tester, e *env) {
	full := e.full()
	full.ReplacedBy, full.HoldFree = "", false
	r := e.keeps(t, full)
	blank := e.identity(r)
	blank.Request = nil // as retention does
	got := e.commit(t, update(blank.Clone()))[0]
	same(t, "the returned record", got, written(blank, got))
	e.everywhere(t, written(blank, got))
	for _, ref := range full.OwnedRefs() {
		e.none(t, settle.ByRef(full.Account, full.Kind, ref))
	}
}

func payloadBytes(t tester, e *env) {
	for _, p := range []string{"\x00", "\x00\x00abc\x00", "\xff\xfe\xfd", "é\xc3", `\x00\\0'"`, " \t\n ", "null", "{}"} {
		e.keeps(t, e.record(func(r *settle.Record) { r.Request, r.Result = settle.Payload(p), settle.Payload(p+p) }))
	}
	e.keeps(t, e.record(func(r *settle.Record) { r.Request, r.Result = allBytes(), allBytes() }))
}

func payloadNil(t tester, e *env) {
	none, empty := settle.Payload(nil), settle.Payload{}
	for _, p := range [][2]settle.Payload{{none, none}, {none, empty}, {empty, none}, {empty, empty}} {
		e.keeps(t, e.record(func(r *settle.Record) { r.Request, r.Result = p[0], p[1] }))
	}
	r := e.create(t, func(r *settle.Record) { r.Result = empty })
	r.Request, r.Result = empty, nil
	got := e.commit(t, update(r))[0]
	same(t, "the record", e.read(t, r.ID), written(r, got))
}

func payloadLarge(t tester, e *env) {
	large := settle.Payload(bytes.Repeat(allBytes()[:256], 1<<20/256))
	r := e.keeps(t, e.record(func(r *settle.Record) { r.Request, r.Result = large, large }))
	r.Tries = 1
	got := e.commit(t, update(r))[0]
	same(t, "the updated record", e.read(t, r.ID), got)
}

func texts(t tester, e *env) {
	for _, s := range []string{text, strings.Repeat(text, 60), " leading and trailing ", "NULL", "0", "true", "{}", "e\u0301", "\u00e9"} {
		e.keeps(t, e.record(func(r *settle.Record) { r.Message, r.Withdrawn = s, s }))
	}
}

func times(t tester, e *env) {
	for _, x := range []time.Time{
		{},
		earliest, moment, latest,
		time.Date(1582, 10, 10, 0, 0, 0, 1000, time.UTC),                 // in no calendar but the proleptic one
		time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),       // before the epoch
		time.Date(2016, 12, 31, 23, 59, 59, 123_456_000, time.UTC),       // before a leap second
		time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC),                    // local time skips it in places
		time.UnixMicro(1<<53 + 1).UTC(), time.UnixMicro(1<<31 - 1).UTC(), // beyond a float's, a 32-bit integer's
	} {
		r := e.record(func(r *settle.Record) {
			r.SendBefore, r.ResumedAt, r.RetryAt = x, x, x
			r.Attempts = []settle.Attempt{{N: 1, Start: x, End: x}}
			r.Approval = &settle.Approval{By: "x", At: x, Until: x}
			r.Review = &settle.Review{Since: x, Deadline: x}
			r.Progress = &settle.Progress{State: settle.StateProcessing, Since: x}
		})
		e.keeps(t, r)
	}
}

func timeEpoch(t tester, e *env) {
	r := e.record(func(r *settle.Record) {
		r.SendBefore, r.ResumedAt, r.RetryAt = epoch, epoch, epoch
		r.Attempts = []settle.Attempt{{N: 1, Start: epoch, End: epoch}}
	})
	e.keeps(t, r)
}

func amounts(t tester, e *env) {
	for _, v := range []string{
		"0", "0.01", "1e-18", "-0.000000000000000001", "1e6", "19.99", "9007199254740993",
		"123456789012345678901234567890123456", "0.123456789012345678", "999999999999999999.999999999999999999",
	} {
		a := amount(v, "EUR/major")
		e.keeps(t, e.record(func(r *settle.Record) {
			r.Terms.Amount = a
			r.References = []settle.Reference{{Ref: "pi_" + v, Terms: settle.Terms{Amount: a}}}
			r.Ledger = []settle.Posting{{Operation: r.ID, Kind: "refund", Amount: a, Status: settle.PostingOpen}}
		}))
	}
	e.keeps(t, e.record(func(r *settle.Record) { r.Terms = settle.Terms{Amount: settle.Minor(1999, "EUR")} }))
}

func longLists(t tester, e *env) {
	r := e.record(func(r *settle.Record) {
		for i := range 300 {
			r.Attempts = append(r.Attempts, settle.Attempt{N: i + 1, Start: moment, Code: fmt.Sprint(i * 7 % 300)})
			r.References = append(r.References, settle.Reference{Ref: fmt.Sprintf("pi_%03d", i*7%300), Foreign: i%2 == 0})
			r.Ledger = append(r.Ledger, settle.Posting{Operation: uuidOf(int64(i * 7 % 300)), Kind: "refund", Status: settle.PostingFreed})
		}
	})
	e.keeps(t, r)
}

// copied checks that the record is still what it was.
func (e *env) copied(t tester, want settle.Record) {
	t.Helper()
	same(t, "after the caller changed its copy, the stored record", e.read(t, want.ID), want)
}

// fixture stores a full record and returns a copy of its own to compare with.
func (e *env) fixture(t tester) settle.Record {
	t.Helper()
	r := e.full()
	got := e.commit(t, create(r.Clone()))[0]
	return written(r, got)
}

func copiesGet(t tester, e *env) {
	want := e.fixture(t)
	scribbleRecord(e.read(t, want.ID))
	e.copied(t, want)
	scribbleRecord(e.get(t, settle.ByRef(want.Account, want.Kind, want.OwnedRefs()[0])))
	e.copied(t, want)
}

func copiesCommit(t tester, e *env) {
	r := e.full()
	in := r.Clone()
	got := e.commit(t, create(in))[0]
	want := written(r, got)
	scribbleRecord(in)
	e.copied(t, want)
	scribbleRecord(got)
	e.copied(t, want)

	in = want.Clone()
	in.Tries = 5
	c := e.change(update(in))
	got = e.apply(t, c)[0]
	want.Tries = 5
	want = written(want, got)
	scribbleRecord(in)
	scribbleRecord(got)
	e.copied(t, want)
	scribbleRecord(e.apply(t, c)[0]) // the repeat's answer (S26)
	e.copied(t, want)
}

func copiesConflict(t tester, e *env) {
	want := e.fixture(t)
	for _, c := range []settle.Change{
		e.change(create(want)),
		e.change(func() settle.Write { w := update(want); w.IfVersion = 9; return w }()),
	} {
		_, err := e.store.Commit(t.Context(), c)
		var x *settle.ConflictError
		if !errors.As(err, &x) {
			t.Fatalf("got error %v, want a *ConflictError", err)
		}
		scribbleRecord(x.Existing)
		e.copied(t, want)
	}
}

func copiesClaim(t tester, e *env) {
	r := e.full()
	got := e.commit(t, dueIn(create(r.Clone()), 0))[0]
	e.untilDue(t, r.ID)
	claimed := e.claimOne(t, time.Hour)
	want := written(r, got)
	want.Token, want.Version, want.Due = claimed.Token, claimed.Version, claimed.Due
	scribbleRecord(claimed)
	e.copied(t, want)
}

func copiesList(t tester, e *env) {
	want := e.fixture(t)
	for _, r := range e.list(t, settle.Query{}) {
		scribbleRecord(r)
	}
	e.copied(t, want)
}

func copiesHistory(t tester, e *env) {
	in := e.fullEntry()
	w := create(e.record())
	w.Entry = in
	w.Entry.Alarms = append([]string(nil), in.Alarms...)
	got := e.commit(t, w)[0]
	scribbleEntry(w.Entry)
	want := e.history(t, got.ID)
	if len(want) != 1 || strings.Join(want[0].Alarms, " ") != strings.Join(in.Alarms, " ") {
		t.Fatalf("the history has %d entries or not the alarms that were written", len(want))
	}
	for i := range want {
		want[i].Alarms = append([]string(nil), want[i].Alarms...)
	}
	for _, h := range e.history(t, got.ID) {
		scribbleEntry(h)
	}
	sameEntries(t, e.history(t, got.ID), want)
}

func copiesEachOther(t tester, e *env) {
	want := e.fixture(t)
	a, b := e.read(t, want.ID), e.read(t, want.ID)
	scribbleRecord(a)
	same(t, "after the caller changed another answer, this one", b, want)
	c, d := e.list(t, settle.Query{}), e.list(t, settle.Query{})
	if len(c) != 1 || len(d) != 1 {
		t.Fatalf("List returned %d and %d records, want 1", len(c), len(d))
	}
	scribbleRecord(c[0])
	same(t, "after the caller changed another answer, this one", d[0], want)
}

func clock(t tester, e *env) {
	r := e.create(t, func(r *settle.Record) {
		r.SendBefore, r.RetryAt, r.ResumedAt, r.AsOf = latest, latest, earliest, latest
	})
	// What was written elsewhere meanwhile was written before this is read.
	if r.AsOf.Equal(latest) {
		t.Fatalf("AsOf is %v, which the caller wrote", r.AsOf)
	}
	last := r.AsOf
	for !last.After(r.AsOf) && t.Context().Err() == nil {
		last = e.create(t).AsOf
	}
	if now := e.read(t, r.ID).AsOf; now.Before(last) {
		t.Fatalf("AsOf is %v after a write at %v", now, last)
	}
	for range 3 {
		last = e.until(t, r.ID, func(now settle.Record) bool {
			if now.AsOf.Before(last) {
				t.Fatalf("AsOf went back from %v to %v", last, now.AsOf)
			}
			return now.AsOf.After(last)
		}).AsOf
	}
	for _, got := range e.list(t, settle.Query{}) {
		if got.AsOf.Before(last) {
			t.Errorf("List has AsOf %v, want at least %v", got.AsOf, last)
		}
	}
	up := e.commit(t, dueIn(update(r), time.Hour))[0]
	if up.UpdatedAt.Before(last) || up.UpdatedAt.Equal(latest) {
		t.Errorf("UpdatedAt is %v, want the time of the write, at least %v", up.UpdatedAt, last)
	}
	if up.Due.Sub(up.UpdatedAt) != time.Hour {
		t.Errorf("Due is %v, want %v an hour after UpdatedAt", up.Due, up.UpdatedAt)
	}
	if _, off := up.AsOf.Zone(); off != 0 || up.AsOf.Nanosecond()%1000 != 0 {
		t.Errorf("AsOf is %v, want whole microseconds in UTC", up.AsOf)
	}
}
