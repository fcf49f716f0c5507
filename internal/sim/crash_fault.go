package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// Fault is what befalls one call of one process, in the words of docs/failures.md.
type Fault string

// The faults. For a call to the provider FailsBefore is a request that was not sent, AnswerLost a
// reply that was lost, and RunsTwice a resend hidden in the transport; for one to the store it
// is a retry hidden in the driver.
const (
	FailsBefore Fault = "fails before" // not made; the process gets an error
	AnswerLost  Fault = "answer lost"  // made; the process gets an error
	GoneBefore  Fault = "gone before"  // the process dies and the call is not made
	GoneAfter   Fault = "gone after"   // the call is made and the process dies
	RunsTwice   Fault = "runs twice"   // made twice, one answer
	StoreDown   Fault = "store down"   // this call and all others to the store fail for a minute
)

// sceneOutage is how long a store is down: longer than any lease and any patience.
const sceneOutage = time.Minute

// Faults lists them.
func Faults() []Fault {
	return []Fault{FailsBefore, AnswerLost, GoneBefore, GoneAfter, RunsTwice, StoreDown}
}

type sceneKind int

const (
	sceneStoreCall sceneKind = iota
	sceneProviderCall
	sceneHook
)

// sceneCall is one call to the outside of a process.
type sceneCall struct {
	N     int    // counted from 1 over all processes
	Proc  string // who makes it
	Site  string // where in the protocol it is
	kind  sceneKind
	quiet bool // not worth a line if nothing came of it
	open  bool // a call that may take time: its start and its end are lines of their own
	begin string
}

// sceneThrough makes one call as the plan says, and tells the trace. do returns what to tell.
func sceneThrough(p *sceneProc, c *sceneCall, do func() (string, error)) (Fault, error) {
	w := p.w
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return "", errSceneGone
	}
	if c.kind == sceneStoreCall && time.Now().Before(w.downUntil) {
		w.mu.Unlock()
		w.say(p.name, "%s   [%s]", c.head(), StoreDown)
		return StoreDown, errSceneBroken
	}
	w.n++
	c.N, c.Proc = w.n, p.name
	w.mu.Unlock()
	fault := p.fault(c)
	note := ""
	if fault != "" {
		note = "   [" + string(fault) + "]"
	}
	switch fault {
	case FailsBefore:
		w.say(p.name, "%s%s", c.head(), note)
		return fault, errSceneBroken
	case StoreDown:
		w.mu.Lock()
		w.downUntil = time.Now().Add(sceneOutage)
		w.mu.Unlock()
		w.say(p.name, "%s%s", c.head(), note)
		return fault, errSceneBroken
	case GoneBefore:
		p.die()
		w.say(p.name, "%s%s", c.head(), note)
		return fault, errSceneGone
	case AnswerLost, GoneAfter, RunsTwice:
	}
	if c.open {
		w.say(p.name, "%s%s", c.head(), note)
		note = ""
	}
	text, err := do()
	if fault == RunsTwice {
		text, err = do()
	}
	switch {
	case c.open:
		w.say(p.name, "%s answers: %s", c.Site, text)
	case !c.quiet || text != "":
		w.say(p.name, "%s: %s%s", c.Site, text, note)
	}
	switch {
	case fault == GoneAfter:
		p.die()
		return fault, errSceneGone
	case fault == AnswerLost:
		return fault, errSceneBroken
	case !p.alive():
		return fault, errSceneGone // it died while the call was under way
	}
	return fault, err
}

func (c *sceneCall) head() string {
	if c.begin == "" {
		return c.Site
	}
	return c.Site + ": " + c.begin
}

// fault is what the scenario or the plan of the whole run has for a call.
func (p *sceneProc) fault(c *sceneCall) Fault {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, f := range p.faults {
		if f.site == c.Site && !f.spent {
			f.spent = !f.always
			return f.fault
		}
	}
	if p.w.plan == nil {
		return ""
	}
	return p.w.plan(c)
}

// sceneStore is the store as one process sees it.
type sceneStore struct{ p *sceneProc }

func (s *sceneStore) Get(ctx context.Context, by settle.Index) (out settle.Record, err error) {
	c := &sceneCall{Site: siteRead(by)}
	_, err = sceneThrough(s.p, c, func() (string, error) {
		out, err = s.p.w.store.Get(ctx, by)
		return s.p.w.found(out, err), err
	})
	return keepIf(out, err)
}

// Version is there where the store has it.
func (s *sceneStore) Version(ctx context.Context, id string) (out settle.Record, err error) {
	v, ok := s.p.w.raw.(settle.Versioner)
	if !ok {
		return out, errSceneGone
	}
	_, err = sceneThrough(s.p, &sceneCall{Site: siteVersion}, func() (string, error) {
		out, err = v.Version(ctx, id)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s v%d", s.p.w.label(id), out.Version), nil
	})
	return keepIf(out, err)
}

func (s *sceneStore) Commit(ctx context.Context, ch settle.Change) (out []settle.Record, err error) {
	c := &sceneCall{Site: siteCommit(ch)}
	_, err = sceneThrough(s.p, c, func() (string, error) {
		out, err = s.p.w.store.Commit(ctx, ch)
		return s.p.w.wrote(ch, out, err), err
	})
	return keepIf(out, err)
}

func (s *sceneStore) Claim(ctx context.Context, cl settle.Claim) (out []settle.Record, err error) {
	if !s.p.w.anyDue(cl.Kinds) && s.p.alive() {
		return s.p.w.store.Claim(ctx, cl) // a poll that finds nothing; how many there are is chance
	}
	c := &sceneCall{Site: siteClaim, quiet: true}
	if slices.Equal(cl.Kinds, []string{settle.RetentionKind}) {
		c.Site = sitePlace
	}
	_, err = sceneThrough(s.p, c, func() (string, error) {
		out, err = s.p.w.store.Claim(ctx, cl)
		return s.p.w.claimed(out, cl), err
	})
	return keepIf(out, err)
}

func (s *sceneStore) Renew(ctx context.Context, held []settle.Held, lease time.Duration) (out []error, err error) {
	_, err = sceneThrough(s.p, &sceneCall{Site: siteRenew}, func() (string, error) {
		out, err = s.p.w.store.Renew(ctx, held, lease)
		var text []string
		for i, h := range held {
			said := err
			if err == nil {
				said = out[i]
			}
			if said != nil {
				text = append(text, s.p.w.label(h.ID)+", "+said.Error())
			} else {
				text = append(text, s.p.w.label(h.ID)+" for "+lease.String())
			}
		}
		slices.Sort(text)
		return strings.Join(text, "; "), err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *sceneStore) List(ctx context.Context, q settle.Query) (out []settle.Record, err error) {
	site := siteReport
	switch {
	case q.Overdue > 0 && s.p.w.scene.retains > 0:
		return s.p.w.store.List(ctx, q) // retention works beside it: which comes first is chance
	case q.Overdue > 0:
		site = siteOverdue
	case s.p.w.scene.retains > 0:
		site = siteOld
	}
	_, err = sceneThrough(s.p, &sceneCall{Site: site, quiet: true}, func() (string, error) {
		out, err = s.p.w.store.List(ctx, q)
		return "", err
	})
	return keepIf(out, err)
}

func (s *sceneStore) History(ctx context.Context, id string, after int64, limit int) ([]settle.Entry, error) {
	return s.p.w.store.History(ctx, id, after, limit) // a read for people; no part of the protocol
}

// LocalReads passes on what the store says about its reads.
func (s *sceneStore) LocalReads() bool {
	l, ok := s.p.w.raw.(settle.Local)
	return ok && l.LocalReads()
}

// keepIf drops an answer that did not come. What a conflict names is part of its error.
func keepIf[T any](out T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// sceneAPI is the provider as one process sees it.
type sceneAPI struct{ p *sceneProc }

func (a *sceneAPI) Create(ctx context.Context, r providertest.Request) (out providertest.Object, err error) {
	w := a.p.w
	c := &sceneCall{Site: siteSend, kind: sceneProviderCall, open: true, begin: w.request(r)}
	at := time.Now()
	fault, err := sceneThrough(a.p, c, func() (string, error) {
		w.watch(r)
		out, err = w.provider.Create(ctx, r)
		return sceneObject(out, err), err
	})
	if fault != FailsBefore && fault != GoneBefore {
		var f *providertest.Fault
		harmless := errors.As(err, &f) && (f.Status == 401 || f.Status == 429)
		w.mu.Lock()
		w.answers = append(w.answers, sceneAnswer{req: r, at: at, harmless: harmless})
		w.mu.Unlock()
	}
	return keepIf(out, err)
}

func (a *sceneAPI) Get(ctx context.Context, id string) (out providertest.Object, err error) {
	c := &sceneCall{Site: siteAskRef, kind: sceneProviderCall, begin: id}
	_, err = sceneThrough(a.p, c, func() (string, error) {
		out, err = a.p.w.provider.Get(ctx, id)
		return sceneObject(out, err) + a.p.w.looked(out), err
	})
	return keepIf(out, err)
}

func (a *sceneAPI) List(ctx context.Context, q providertest.Query) (out providertest.Page, err error) {
	c := &sceneCall{Site: siteAsk, kind: sceneProviderCall, begin: a.p.w.label(q.Reference)}
	_, err = sceneThrough(a.p, c, func() (string, error) {
		out, err = a.p.w.provider.List(ctx, q)
		switch {
		case err != nil:
			return sceneObject(providertest.Object{}, err), err
		case len(out.Objects) == 0:
			return a.p.w.label(q.Reference) + " not found", nil
		}
		text := a.p.w.label(q.Reference) + " is"
		for _, o := range out.Objects {
			text += " " + sceneObject(o, nil)
		}
		return text + a.p.w.looked(out.Objects...), nil
	})
	return keepIf(out, err)
}
