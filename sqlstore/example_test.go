package sqlstore_test

import (
	"fmt"

	"github.com/settle-go/settle/sqlstore"
)

// What opens a SQLite file so that sqlstore.New takes it. The README's program, which a test compiles and runs, goes on from here.
func ExampleDSN() {
	fmt.Println(sqlstore.DSN("shop.db"))
	// Output:
	// file:shop.db?_pragma=busy_timeout%285000%29&_pragma=journal_mode%28WAL%29&_pragma=synchronous%28FULL%29&_pragma=wal_autocheckpoint%284000%29&_txlock=immediate
}
