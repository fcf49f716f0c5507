package boltstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

type executor = settle.Executor[providertest.Payment, providertest.Receipt]

// process opens the file as a process would, with an executor that ships in the
// transaction in which the charge succeeds.
func process(t *testing.T, path string, provider *providertest.Provider, promise settle.Contract) (*bbolt.DB, *executor) {
	t.Helper()
	db := file(t, path)
	engine, err := settle.Open(store(t, db), &settle.Options{Scope: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	charges, err := settle.New(engine, "charge", providertest.ChargeAdapter(provider, promise),
		&settle.ExecutorOptions[providertest.Payment, providertest.Receipt]{OnSuccess: ship})
	if err != nil {
		t.Fatal(err)
	}
	return db, charges
}

// ship notes each shipping of an order in a bucket of the application.
func ship(_ context.Context, tx settle.Tx, out settle.Outcome[providertest.Receipt]) error {
	b, err := tx.Unwrap().(*bbolt.Tx).CreateBucketIfNotExists([]byte("shipped"))
	if err != nil {
		return err
	}
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	return b.Put([]byte{byte(n)}, []byte(out.Subject))
}

func shipped(t *testing.T, db *bbolt.DB) (orders []string) {
	t.Helper()
	if err := db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("shipped"))
		if b == nil {
			return nil
		}
		return b.ForEach(func(_, order []byte) error {
			orders = append(orders, string(order))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return orders
}

// The provider makes the charge, its reply is lost, and the process ends. The next one finds
// the operation in the file, asks, and ships once (I1, I2, I4, I11).
func TestLostReply(t *testing.T) {
	synctest.Test(t, lostReply) // where the time between two questions costs nothing
}

func lostReply(t *testing.T) {
	offer := &providertest.Options{KeyWindow: 24 * time.Hour}
	provider := providertest.New(offer)
	provider.Script(providertest.DropReply())
	provider.ScriptLookup(providertest.DropReply()) // nor can the first process ask
	path := filepath.Join(t.TempDir(), "app.db")
	op := settle.Operation[providertest.Payment]{
		Subject: "order-8472", Purpose: "purchase",
		Request: providertest.Payment{Amount: 1999, Currency: "EUR"},
	}

	db, charges := process(t, path, provider, providertest.Promise(offer))
	first, err := charges.Execute(t.Context(), op)
	if !errors.Is(err, settle.ErrUnknown) || first.State != settle.StateUnknown {
		t.Fatalf("the lost reply left state %s and error %v, want unknown", first.State, err)
	}
	if got := shipped(t, db); len(got) != 0 {
		t.Errorf("shipped %q before anybody knew of the charge", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db, charges = process(t, path, provider, providertest.Promise(offer))
	id := first.ID
	stored, err := charges.Find(t.Context(), op.Intent())
	if err != nil || stored.ID != id || len(stored.Attempts) != 1 {
		t.Fatalf("the next process finds %v with %d attempts and error %v", stored, len(stored.Attempts), err)
	}
	time.Sleep(time.Minute) // until the next question is due
	out, err := charges.Execute(t.Context(), op)
	if err != nil || out.ID != id || out.State != settle.StateSucceeded {
		t.Fatalf("the repeat ends with %v and error %v, want the same operation succeeded", out, err)
	}
	if n := provider.Effects(id); n != 1 {
		t.Errorf("the provider made %d charges, want 1", n)
	}
	if n := provider.Calls(providertest.OpCreate); n != 1 {
		t.Errorf("the provider got %d requests for a charge, want 1: the second process asked", n)
	}
	if _, err := charges.Execute(t.Context(), op); err != nil {
		t.Errorf("the replay: %v", err)
	}
	if got := shipped(t, db); len(got) != 1 || got[0] != op.Subject {
		t.Errorf("shipped %q, want the order once", got)
	}
}
