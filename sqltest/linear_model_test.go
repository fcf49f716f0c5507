package sqltest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settle-go/settle"
)

// The model of one record's life, against which histories of concurrent calls are held.
//
// Time is sound without a clock of the test's: every call carries what is known of the
// store's own clock at its moment. lo is the latest AsOf that any call had returned before
// this one began; a Commit and a Claim tell their time themselves; of a renewal, which
// tells nothing, a read that began after it gives the upper bound. So a lease is known to
// have ended, known to live, or neither, and only what is known can be a violation.

// lifeState is a record as the model knows it. The zero value: there is none.
type lifeState struct {
	version      int64
	token, code  string
	never        bool  // no Due
	dueLo, dueHi int64 // else Due lies between them, in microseconds
	log          string
	over         bool
}

// forever is later than every instant, and can be added to.
const forever = math.MaxInt64 / 4

// lifeCall is the call: what was asked for.
type lifeCall struct {
	do        string // create, update, claim, renew, get, history, end
	id        string
	lo        int64
	twice     bool   // see load
	change    string // of create and update; it is also what they write into Code
	ifVersion int64
	ifToken   string
	token     string        // that is written, claimed with, or renewed
	due       time.Duration // DueIn, or the lease
}

// lifeAnswer is what came back.
type lifeAnswer struct {
	result verdict
	rec    lifeSeen // of ok and conflict
	hi     int64    // of renew: the store's time when it was over
	log    string   // of history
}

type verdict string

const (
	resultOK       verdict = "ok"
	resultConflict verdict = "conflict"
	resultNotFound verdict = "not found"
	resultLost     verdict = "claim lost"
	// resultUnknown: an error that says nothing (S6). It happens at some time after the call
	// began, or never.
	resultUnknown verdict = "unknown"
)

// lifeSeen is the part of a record that the model compares.
type lifeSeen struct {
	version     int64
	token, code string
	never       bool
	due, asOf   int64
}

// logged is the line that a write leaves in the history.
func logged(version int64, change string) string { return fmt.Sprintf("%d:%s;", version, change) }

func (s lifeState) applied(change string) bool { return strings.Contains(s.log, ":"+change+";") }

// shows reports whether a reader can have seen the record so, and what is known after that.
func (s lifeState) shows(r lifeSeen) (lifeState, bool) {
	if s.version == 0 || s.version != r.version || s.token != r.token || s.code != r.code || s.never != r.never {
		return s, false
	}
	if s.never {
		return s, true
	}
	if r.due < s.dueLo || r.due > s.dueHi {
		return s, false
	}
	s.dueLo, s.dueHi = r.due, r.due
	return s, true
}

// mayHold: the token can have a live lease at some time from lo on. mayNotHold: it can have none
// at some time until hi.
func (s lifeState) mayHold(token string, lo int64) bool {
	return s.version != 0 && token != "" && s.token == token && !s.never && s.dueHi > lo
}

func (s lifeState) mayNotHold(token string, hi int64) bool {
	return s.version == 0 || token == "" || s.token != token || s.never || s.dueLo <= hi
}

// dueAt moves Due to between lo and hi, both plus d; or keeps or clears it.
func (s lifeState) dueAt(d time.Duration, lo, hi int64) lifeState {
	switch {
	case d == settle.Keep && s.version != 0:
	case d < 0:
		s.never, s.dueLo, s.dueHi = true, 0, 0
	default:
		s.never, s.dueLo, s.dueHi = false, lo+d.Microseconds(), min(hi+d.Microseconds(), forever)
	}
	return s
}

// written is the record after the write of c at a time between lo and hi.
func (s lifeState) written(c *lifeCall, lo, hi int64) lifeState {
	s = s.dueAt(c.due, lo, hi)
	s.version, s.token, s.code = c.ifVersion+1, c.token, c.change
	s.log += logged(s.version, c.change)
	return s
}

// claimed is the record after the claim of c at a time between lo and hi.
func (s lifeState) claimed(c *lifeCall, lo, hi int64) lifeState {
	s = s.dueAt(c.due, lo, hi)
	s.version++
	s.token = c.token
	return s
}

// stepLife says whether the record can take this step, and how it is then.
func stepLife(state, input, output any) (bool, any) {
	s, c, a := state.(lifeState), input.(*lifeCall), output.(*lifeAnswer)
	if (a.result == resultOK || a.result == resultConflict) && c.do != "renew" && c.do != "history" && a.rec.asOf < c.lo {
		return false, s // S4: the store's clock went back
	}
	// A call without an answer that had no effect can be anywhere, and a search that tries
	// everywhere does not end. So it comes last, after the end of the history, when no answer
	// depends on it.
	if s.over {
		return a.result == resultUnknown, s
	}
	switch c.do {
	case "end":
		s.over = true
		return true, s
	case "create", "update":
		return s.commit(c, a)
	case "claim":
		return s.claim(c, a)
	case "renew":
		return s.renew(c, a)
	case "get":
		if a.result == resultNotFound {
			return s.version == 0, s
		}
		next, ok := s.shows(a.rec)
		return ok, next
	case "history":
		return s.log == a.log, s
	}
	panic("no step " + c.do)
}

func (s lifeState) commit(c *lifeCall, a *lifeAnswer) (bool, any) {
	applied := s.applied(c.change)
	switch a.result {
	case resultOK:
		next := s
		if !applied { // S20, S22
			guarded := a.rec.asOf
			if c.twice {
				guarded = c.lo // or later
			}
			if s.version != c.ifVersion || c.ifToken != "" && !s.mayHold(c.ifToken, guarded) {
				return false, s
			}
			if c.due == settle.Keep && c.ifToken != "" {
				s.dueLo = max(s.dueLo, guarded+1) // the lease lived
			}
			next = s.written(c, a.rec.asOf, a.rec.asOf)
		}
		next, ok := next.shows(a.rec) // S26, S28
		return ok, next
	case resultConflict: // S21, S22, S23
		next, ok := s.shows(a.rec)
		stands := s.version != c.ifVersion || c.ifToken != "" && next.mayNotHold(c.ifToken, a.rec.asOf)
		return ok && stands && !applied, next
	case resultNotFound:
		return s.version == 0 && c.ifVersion > 0, s
	case resultUnknown:
		if applied || s.version != c.ifVersion || c.ifToken != "" && !s.mayHold(c.ifToken, c.lo) {
			return false, s
		}
		hi := int64(forever)
		if c.ifToken != "" && !c.twice {
			hi = s.dueHi - 1 // while the lease lived
		}
		return true, s.written(c, c.lo, hi)
	case resultLost:
	}
	return false, s
}

func (s lifeState) claim(c *lifeCall, a *lifeAnswer) (bool, any) {
	if a.result == resultUnknown {
		if s.version == 0 || s.never {
			return false, s
		}
		return true, s.claimed(c, max(c.lo, s.dueLo), forever) // once it was due
	}
	if s.version == 0 || s.never || s.dueLo > a.rec.asOf { // S30, S31
		return false, s
	}
	next, ok := s.claimed(c, a.rec.asOf, a.rec.asOf).shows(a.rec) // S32
	return ok, next
}

func (s lifeState) renew(c *lifeCall, a *lifeAnswer) (bool, any) {
	switch a.result {
	case resultOK:
		if !s.mayHold(c.token, c.lo) { // S41
			return false, s
		}
		if c.twice { // the row is locked from the look to the write
			return true, s.dueAt(c.due, c.lo, a.hi)
		}
		return true, s.dueAt(c.due, c.lo, min(a.hi, s.dueHi-1)) // S40
	case resultLost:
		if !s.mayNotHold(c.token, a.hi) {
			return false, s
		}
		if s.version != 0 && s.token == c.token && !s.never {
			s.dueHi = min(s.dueHi, a.hi) // the lease was over
		}
		return true, s
	case resultUnknown:
		if !s.mayHold(c.token, c.lo) {
			return false, s
		}
		if c.twice {
			return true, s.dueAt(c.due, c.lo, forever)
		}
		return true, s.dueAt(c.due, c.lo, s.dueHi-1)
	case resultConflict, resultNotFound:
	}
	return false, s
}

func lifeModel() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return lifeState{} },
		Step:              stepLife,
		DescribeOperation: func(in, out any) string { return in.(*lifeCall).String() + " → " + out.(*lifeAnswer).String() },
		DescribeState:     func(s any) string { return s.(lifeState).String() },
	}
}

// String is the call on one line of a trace.
func (c *lifeCall) String() string {
	if c.do == "end" {
		return "end of the history"
	}
	text := c.do
	if c.change != "" {
		text += fmt.Sprintf(" %s if v%d", c.change, c.ifVersion)
	}
	if c.ifToken != "" {
		text += " if " + c.ifToken
	}
	if c.token != "" {
		text += " token " + c.token
	}
	switch {
	case c.do == "get", c.do == "history":
	case c.due == settle.Keep:
		text += " due kept"
	case c.due == settle.Never:
		text += " due never"
	default:
		text += fmt.Sprintf(" for %v", c.due)
	}
	return text + fmt.Sprintf(" (store's time ≥ %d)", c.lo)
}

// String is the answer on one line of a trace.
func (a *lifeAnswer) String() string {
	text := string(a.result)
	if a.rec.version != 0 {
		r := a.rec
		text += fmt.Sprintf(" v%d token %q code %q due %s at %d", r.version, r.token, r.code, dueText(r.never, r.due, r.due), r.asOf)
	}
	if a.hi != 0 {
		text += fmt.Sprintf(" (store's time ≤ %d)", a.hi)
	}
	if a.log != "" {
		text += " " + a.log
	}
	return text
}

// String is the state as a trace shows it.
func (s lifeState) String() string {
	if s.version == 0 {
		return "no record"
	}
	return fmt.Sprintf("v%d token %q code %q due %s, history %s", s.version, s.token, s.code, dueText(s.never, s.dueLo, s.dueHi), s.log)
}

func dueText(never bool, lo, hi int64) string {
	switch {
	case never:
		return "never"
	case lo == hi:
		return fmt.Sprint(lo)
	case hi >= forever:
		return fmt.Sprintf("≥ %d", lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}
