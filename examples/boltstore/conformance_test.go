package boltstore_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/boltstore"
	"github.com/settle-go/settle/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) settle.Store {
			return store(t, file(t, filepath.Join(t.TempDir(), "app.db")))
		},
		Reopen: func(t testing.TB, s settle.Store) settle.Store {
			return store(t, s.(*boltstore.Store).DB())
		},
		Begin: func(t testing.TB, s settle.Store) (settle.Tx, func() error, func() error) {
			tx, err := s.(*boltstore.Store).DB().Begin(true)
			if err != nil {
				t.Fatal(err)
			}
			return s.(*boltstore.Store).In(tx), tx.Commit, tx.Rollback
		},
	})
}

func file(t testing.TB, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func store(t testing.TB, db *bbolt.DB) *boltstore.Store {
	t.Helper()
	s, err := boltstore.New(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
