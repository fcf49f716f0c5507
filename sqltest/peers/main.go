// Peers pays orders on one PostgreSQL server by settle, by hand, by DBOS and by River, in turn, and
// prints what each costs. Nothing else should run on the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type settings struct {
	dsn    string
	span   time.Duration
	rounds int
	rows   int
	parts  string
}

func main() {
	var s settings
	flag.StringVar(&s.dsn, "dsn", "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable", "a server on which databases may be made")
	flag.DurationVar(&s.span, "span", 3*time.Second, "how long each cell runs")
	flag.IntVar(&s.rounds, "rounds", 3, "how often each cell runs; the median counts")
	flag.IntVar(&s.rows, "rows", 1_000_000, "settled rows before the sweep, and beside")
	flag.StringVar(&s.parts, "parts", "first,slow,beside,replay,one,sweep,worker", "what to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	parts := map[string]func(context.Context, settings) error{
		"first":  func(ctx context.Context, s settings) error { return first(ctx, s, 0, []int{1, 8, 64}) },
		"slow":   func(ctx context.Context, s settings) error { return first(ctx, s, 20*time.Millisecond, []int{64}) },
		"beside": beside, "replay": replay, "one": one, "sweep": sweep, "worker": worker,
	}
	for name := range strings.SplitSeq(s.parts, ",") {
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("no part %q", name)
		}
		if err := part(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// fresh makes a database for one system, so that none pays for another's rows.
func fresh(ctx context.Context, s settings, provider time.Duration) (*bench, *meter, func(), error) {
	cfg, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return nil, nil, nil, err
	}
	name := fmt.Sprintf("settle_peers_%d", time.Now().UnixNano())
	admin, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, nil, errors.Join(err, admin.Close(ctx))
	}
	drop := func() {
		ctx := context.Background()
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_ = admin.Close(ctx)
	}
	cfg.ConnConfig.Database = name
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		drop()
		return nil, nil, nil, err
	}
	end := func() { pool.Close(); drop() }
	m, err := newMeter(ctx, pool)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	c := cfg.ConnConfig
	dsn := fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable", c.Host, c.Port, c.User, c.Password, name)
	return &bench{dsn: dsn, pool: pool, provider: provider}, m, end, nil
}

// stand is a system that is ready.
type stand struct {
	name string
	sys  system
	m    *meter
	end  func()
}

func stands(ctx context.Context, s settings, provider time.Duration, of []maker) (all []stand, err error) {
	for _, k := range of {
		b, m, drop, err := fresh(ctx, s, provider)
		if err != nil {
			return all, err
		}
		sys, err := k.make(ctx, b)
		if err != nil {
			drop()
			return all, fmt.Errorf("%s: %w", k.name, err)
		}
		all = append(all, stand{k.name, sys, m, func() { sys.close(); drop() }})
	}
	return all, nil
}

func end(all []stand) {
	for _, x := range all {
		x.end()
	}
}
