package sealsettle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sealsettle"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ring is a keyset under change.
type ring struct {
	t *testing.T
	m *keyset.Manager
}

func newRing(t *testing.T) ring { return ring{t, keyset.NewManager()} }

func (r ring) add() uint32 {
	r.t.Helper()
	id, err := r.m.Add(aead.AES256GCMKeyTemplate())
	ok(r.t, err)
	return id
}

func (r ring) primary(id uint32) *keyset.Handle {
	r.t.Helper()
	ok(r.t, r.m.SetPrimary(id))
	h, err := r.m.Handle()
	ok(r.t, err)
	return h
}

func TestRotation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := newRing(t)
	first := r.add()
	s, err := sealsettle.New(r.primary(first))
	ok(t, err)
	old, err := s.Seal(ctx, []byte("secret"), []byte("here"))
	ok(t, err)
	second := r.add()
	ok(t, s.Use(r.primary(second)))
	fresh, err := s.Seal(ctx, []byte("secret"), []byte("here"))
	ok(t, err)
	if bytes.Equal(old[:5], fresh[:5]) {
		t.Error("the new primary does not seal")
	}
	for _, sealed := range [][]byte{old, fresh} {
		if plain, err := s.Open(ctx, sealed, []byte("here")); err != nil || string(plain) != "secret" {
			t.Errorf("it opens as %q, %v", plain, err)
		}
		if _, err := s.Open(ctx, sealed, []byte("there")); !errors.Is(err, sealsettle.ErrDamaged) {
			t.Errorf("in another place: %v", err)
		}
		changed := bytes.Clone(sealed)
		changed[len(changed)-1] ^= 1
		if _, err := s.Open(ctx, changed, []byte("here")); !errors.Is(err, sealsettle.ErrDamaged) {
			t.Errorf("changed: %v", err)
		}
	}
	ok(t, r.m.Disable(first))
	ok(t, s.Use(r.primary(second)))
	if _, err := s.Open(ctx, old, []byte("here")); !errors.Is(err, sealsettle.ErrKeyGone) {
		t.Errorf("a disabled key: %v", err)
	}
	ok(t, r.m.Enable(first))
	ok(t, s.Use(r.primary(second)))
	if _, err := s.Open(ctx, old, []byte("here")); err != nil {
		t.Errorf("the key is back: %v", err)
	}
	ok(t, r.m.Delete(first))
	ok(t, s.Use(r.primary(second)))
	if _, err := s.Open(ctx, old, []byte("here")); !errors.Is(err, sealsettle.ErrKeyGone) {
		t.Errorf("a key that is gone: %v", err)
	}
	for _, short := range [][]byte{nil, {1}, []byte("garbage")} {
		if _, err := s.Open(ctx, short, nil); !errors.Is(err, sealsettle.ErrKeyGone) {
			t.Errorf("%q opens: %v", short, err)
		}
	}
}

// A keyset that a key management service keeps wrapped is a keyset like any other.
func TestWrappedKeyset(t *testing.T) {
	t.Parallel()
	service, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	ok(t, err)
	kek, err := aead.New(service)
	ok(t, err)
	h, err := keyset.NewHandle(aead.AES128GCMKeyTemplate())
	ok(t, err)
	var file bytes.Buffer
	ok(t, h.Write(keyset.NewJSONWriter(&file), kek))
	before, err := sealsettle.New(h)
	ok(t, err)
	sealed, err := before.Seal(t.Context(), []byte("secret"), nil)
	ok(t, err)
	again, err := keyset.Read(keyset.NewJSONReader(&file), kek)
	ok(t, err)
	after, err := sealsettle.New(again)
	ok(t, err)
	if plain, err := after.Open(t.Context(), sealed, nil); err != nil || string(plain) != "secret" {
		t.Errorf("it opens as %q, %v", plain, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	raw, err := keyset.NewHandle(aead.AES256GCMNoPrefixKeyTemplate())
	ok(t, err)
	if _, err := sealsettle.New(raw); err == nil {
		t.Error("a keyset without prefixes is taken")
	}
	if _, err := sealsettle.New(nil); err == nil {
		t.Error("no keyset is taken")
	}
	var zero sealsettle.Sealer
	if _, err := zero.Seal(t.Context(), []byte("x"), nil); !errors.Is(err, sealsettle.ErrKeyGone) {
		t.Errorf("without keys it seals: %v", err)
	}
	if _, err := zero.Open(t.Context(), []byte("x"), nil); !errors.Is(err, sealsettle.ErrKeyGone) {
		t.Errorf("without keys it opens: %v", err)
	}
}

// Keys are rotated while many operations are under way: each is done once, and all of them can be read.
func TestEngineWhileRotating(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	s, err := sealsettle.New(r.primary(r.add()))
	ok(t, err)
	po := &providertest.Options{KeyWindow: 24 * time.Hour}
	bank := providertest.New(po)
	store := memstore.New(nil)
	engine, err := settle.Open(store, &settle.Options{Scope: "shop", Sealer: s})
	ok(t, err)
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(bank, providertest.Promise(po)), nil)
	ok(t, err)
	op := func(n int) settle.Operation[providertest.Payment] {
		return settle.Operation[providertest.Payment]{
			Subject: fmt.Sprint("order-", n), Purpose: "purchase",
			Request: providertest.Payment{Amount: 1999, Currency: "EUR", Token: "tok_secret"},
		}
	}
	const n = 40
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		if i%10 == 5 {
			ok(t, s.Use(r.primary(r.add()))) // while the five before are under way
			wg.Wait()
		}
		for range 2 {
			wg.Go(func() {
				if _, err := charges.Execute(context.WithoutCancel(t.Context()), op(i)); err != nil {
					errs[i] = err
				}
			})
		}
	}
	wg.Wait()
	ok(t, errors.Join(errs...))
	prefixes := map[string]bool{}
	for i := range n {
		out, err := charges.Execute(t.Context(), op(i))
		ok(t, err)
		if res, read := out.Result(); !read || res.Amount != 1999 || bank.Effects(out.ID) != 1 {
			t.Errorf("%d: result %v, %v, %d effects", i, res, read, bank.Effects(out.ID))
		}
		raw, err := store.Get(t.Context(), settle.ByID(out.ID))
		ok(t, err)
		if !raw.Sealed() || bytes.Contains(raw.Request, []byte("tok_secret")) {
			t.Errorf("stored is %q", []byte(raw.Request))
		}
		prefixes[string(raw.Request[:14])] = true
	}
	if len(prefixes) < 2 {
		t.Error("only one key was used")
	}
}
