package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/internal/rig"
	pt "github.com/settle-go/settle/providertest"
	"github.com/settle-go/settle/sqlstore"
)

// exec runs a statement on a server, as its administrator.
func exec(t *testing.T, driver, dsn, q string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	must(t, err)
	defer db.Close()
	_, err = db.ExecContext(context.Background(), q)
	must(t, err)
}

// postgres makes an empty schema and returns the DSN of it.
func postgres(t *testing.T) string {
	t.Helper()
	base := os.Getenv("SETTLE_POSTGRES")
	if base == "" {
		base = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	name := fmt.Sprintf("settle_cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	exec(t, "pgx", base, `CREATE SCHEMA `+name)
	t.Cleanup(func() { exec(t, "pgx", base, `DROP SCHEMA `+name+` CASCADE`) })
	u, err := url.Parse(base)
	must(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// maria makes an empty database and returns its configuration.
func maria(t *testing.T) *mysql.Config {
	t.Helper()
	base := os.Getenv("SETTLE_MYSQL")
	if base == "" {
		base = "root@tcp(127.0.0.1:3306)/"
	}
	name := fmt.Sprintf("settle_cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	exec(t, "mysql", base, `CREATE DATABASE `+name)
	t.Cleanup(func() { exec(t, "mysql", base, `DROP DATABASE `+name) })
	c, err := mysql.ParseDSN(base)
	must(t, err)
	c.DBName = name
	return c
}

// The same work on servers: from no tables to a decision that the workers act on.
func TestServers(t *testing.T) {
	for name, dsn := range map[string]func(t *testing.T) string{
		"PostgreSQL": postgres,
		"MySQL": func(t *testing.T) string {
			c := maria(t)
			return "mysql://" + c.User + "@" + c.Addr + "/" + c.DBName
		},
		"MySQL in the driver's words": func(t *testing.T) string { return maria(t).FormatDSN() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServer(t, tool{t, dsn(t)})
		})
	}
}

// notices says that something happened.
type notices chan struct{}

func (n notices) Notice(context.Context, settle.Notice) {
	select {
	case n <- struct{}{}:
	default:
	}
}

var ago = regexp.MustCompile(`\d+[hms]+ ago`)

func onServer(t *testing.T, c tool) {
	c.fails(exitFailed, "the database has no schema", "list")
	if got := c.do("migrate"); !strings.Contains(got, "the schema has version") {
		t.Errorf("migrate says %q", got)
	}
	c.do("migrate")
	db, dialect, err := connect(c.dsn, writes)
	must(t, err)
	defer db.Close()
	store, err := sqlstore.New(db, dialect, nil)
	must(t, err)
	defer func() { _ = store.Close() }()

	r := rig.New(t, store, nil)
	mended := make(chan struct{})
	told := make(notices, 1)
	p := r.StartWith(&settle.Options{PollInterval: 20 * time.Millisecond, Observer: told}, &settle.ExecutorOptions[rig.Payment, rig.Receipt]{
		OnSuccess: func(_ context.Context, _ settle.Tx, out settle.Outcome[rig.Receipt]) error {
			select {
			case <-mended:
				return nil
			default:
			}
			if out.Subject == "order-2" {
				return errors.New("the warehouse is closed")
			}
			return nil
		},
	})
	r.Provider.Script(pt.WrongAmount(99))
	disputed, err := p.Charges.Execute(t.Context(), rig.Op("order-1", 100, "EUR"))
	rig.Is(t, err, settle.ErrReview)
	due, err := p.Charges.Execute(t.Context(), rig.Op("order-2", 100, "EUR"))
	rig.Is(t, err, settle.ErrConsequence)
	r.Provider.Script(pt.Decline("card_declined"))
	failed, err := p.Charges.Execute(t.Context(), rig.Op("order-3", 100, "EUR"))
	rig.Is(t, err, settle.ErrFailed)

	if got := c.do("list", "-ids"); got != disputed.ID+"\n"+due.ID+"\n"+failed.ID+"\n" {
		t.Errorf("list says %q", got)
	}
	if got := c.do("list", "-consequence", "due", "-ids"); got != due.ID+"\n" {
		t.Errorf("list says %q", got)
	}
	got := c.do("stats", "-json")
	for _, want := range []string{`"state":"review","settled":false,"count":1`, `"state":"succeeded","settled":true,"count":1`, `"state":"failed","settled":true,"count":1`} {
		if !strings.Contains(got, `{"kind":"charge",`+want) {
			t.Errorf("stats says %s, want %s", got, want)
		}
	}
	// The same words as on a file, whichever server it is.
	golden(t, "server-show.txt", ago.ReplaceAllString(c.do("show", disputed.ID), "1s ago"))
	if got := c.do("assign", "-to", "ben", "-by", "ann", "-reason", "r", "-within", "4h", disputed.ID); !strings.Contains(got, "assigned to ben") {
		t.Errorf("assign says %q", got)
	}
	res := c.in("", "resolve", "-as", "applied", "-by", "ben", "-reason", "accepted", "-evidence", "ticket 7", disputed.ID, "no-such-id")
	if res.code != exitFailed || res.out != disputed.ID+"  review → succeeded\n" || !strings.Contains(res.err, "not found") {
		t.Errorf("resolve says %q and %q, exit %d", res.out, res.err, res.code)
	}
	golden(t, "server-resolved.txt", ago.ReplaceAllString(c.do("show", disputed.ID), "1s ago"))

	// What the command leaves behind is the worker's: the hooks of both run now.
	close(mended)
	c.do("redrive", "-by", "ann", "-reason", "mended", due.ID)
	p.Work()
	for _, id := range []string{due.ID, disputed.ID} {
		for r.Get(id).Consequence != settle.ConsequenceDone {
			<-told
		}
	}
}

// A URL says what the driver's own words say, whatever is in the password.
func TestMySQLConfig(t *testing.T) {
	for dsn, want := range map[string]string{
		"mysql://app:p%40s%3As%2F@db:3307/shop?tls=true&innodb_lock_wait_timeout=9": "app p@s:s/ tcp db:3307 shop true 9",
		"mysql://app@db/shop":                   "app  tcp db:3306 shop  5",
		"mysql://app@[::1]/shop":                "app  tcp [::1]:3306 shop  5",
		"mysql:app:p@tcp(db:3307)/shop":         "app p tcp db:3307 shop  5",
		"mysql://app:p@tcp(db:3307)/shop":       "app p tcp db:3307 shop  5",
		"app:p@unix(/run/mysqld/mysqld.s)/shop": "app p unix /run/mysqld/mysqld.s shop  5",
		"app:p@tcp(db)/shop?readTimeout=3s":     "app p tcp db:3306 shop  5",
	} {
		c, err := mysqlConfig(dsn)
		must(t, err)
		got := strings.Join([]string{c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.TLSConfig, c.Params["innodb_lock_wait_timeout"]}, " ")
		if got != want {
			t.Errorf("%s: %q, want %q", dsn, got, want)
		}
	}
}
