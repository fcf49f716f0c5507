package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/settle-go/settle"
)

func versionCases() []testCase {
	return []testCase{
		{clause: "S11", name: "version", proves: "version, time of the last write and time that are told are those of the record, after every kind of step, and nothing else is", run: versionTold, needs: needsVersion},
		{clause: "S11", name: "version_now", proves: "a version that is told after a commit has returned is not older, however many write", run: versionNow, needs: needsVersion},
		{clause: "S11", name: "version_done", proves: "a version that is asked for under a done context is an error", run: versionDone, needs: needsVersion},
	}
}

// told returns what Version says of id.
func (e *env) told(t tester, id string) settle.Record {
	t.Helper()
	r, err := e.store.(settle.Versioner).Version(t.Context(), id)
	if err != nil {
		t.Fatalf("Version of a record that is there failed: %v", err)
	}
	return r
}

func versionTold(t tester, e *env) {
	if _, err := e.store.(settle.Versioner).Version(t.Context(), e.uuid()); !errors.Is(err, settle.ErrNotFound) {
		t.Errorf("Version of an id that is not there: error %v, want ErrNotFound", err)
	}
	check := func(after, id string) settle.Record {
		t.Helper()
		before := e.read(t, id)
		v := e.told(t, id)
		r := e.read(t, id)
		if v.AsOf.Before(before.AsOf) || v.AsOf.After(r.AsOf) {
			t.Errorf("after %s the version is told as of %v, between two reads as of %v and %v", after, v.AsOf, before.AsOf, r.AsOf)
		}
		same(t, "what is told after "+after, v, settle.Record{ID: r.ID, Version: r.Version, UpdatedAt: r.UpdatedAt, AsOf: v.AsOf})
		return r
	}
	other := e.create(t)
	r := e.due(t, 0)
	check("creation", r.ID)
	e.untilDue(t, r.ID)
	r = e.claimOne(t, time.Hour)
	check("a claim", r.ID)
	if err := renew(t.Context(), e.store, r.ID, r.Token, 2*time.Hour); err != nil {
		t.Fatalf("Renew of a claim that stands failed: %v", err)
	}
	r = check("a renewal", r.ID)
	r.Code, r.ReplacedBy = "replaced", e.uuid()
	e.commit(t, update(r))
	check("a replacement", r.ID)
	check("nothing", other.ID)
}

func versionNow(t tester, e *env) {
	r := e.create(t)
	var committed atomic.Int64
	committed.Store(r.Version)
	parallel(crowd, func(i int) {
		for range 20 {
			if i%2 == 0 {
				least := committed.Load()
				if v := e.told(t, r.ID).Version; v < least {
					t.Errorf("the version is told as %d after version %d was committed", v, least)
				}
				continue
			}
			now := e.read(t, r.ID)
			out, err := persist(t.Context(), e.store, e.change(update(now)))
			if err != nil {
				continue // somebody else was first
			}
			for {
				had := committed.Load()
				if had >= out[0].Version || committed.CompareAndSwap(had, out[0].Version) {
					break
				}
			}
		}
	})
	if v := e.told(t, r.ID).Version; v != e.read(t, r.ID).Version || v < committed.Load() {
		t.Errorf("the version is told as %d in the end, and version %d was committed", v, committed.Load())
	}
}

func versionDone(t tester, e *env) {
	r := e.create(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := e.store.(settle.Versioner).Version(ctx, r.ID); err == nil || errors.Is(err, settle.ErrNotFound) {
		t.Errorf("under a done context the version is told as %d, error %v", v.Version, err)
	}
}
