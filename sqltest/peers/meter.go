package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// meter reads what the server and this process have used so far.
type meter struct {
	pool   *pgxpool.Pool
	server int // the postmaster's pid; 0: its processor time is not to be had
}

// use is a reading, or the difference of two.
type use struct {
	writes, wal    float64
	client, server time.Duration
}

func newMeter(ctx context.Context, pool *pgxpool.Pool) (*meter, error) {
	m := &meter{pool: pool}
	var backend int
	if err := pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, err
	}
	m.server = parent(backend)
	return m, nil
}

func (m *meter) read(ctx context.Context) (u use, err error) {
	// Each transaction that writes takes a number of its own.
	err = m.pool.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8,
		pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&u.writes, &u.wal)
	if err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.client = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	u.server, err = m.family()
	return u, err
}

func (u use) minus(o use) use {
	return use{u.writes - o.writes, u.wal - o.wal, u.client - o.client, u.server - o.server}
}

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// family is the processor time of the server's processes, the ended ones included.
func (m *meter) family() (d time.Duration, err error) {
	if m.server == 0 {
		return 0, nil
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		switch f := stat(pid); {
		case len(f) < 16:
		case pid == m.server:
			d += ticks(f[11], f[12], f[13], f[14])
		case parent(pid) == m.server:
			d += ticks(f[11], f[12])
		}
	}
	return d, nil
}

// stat is /proc/pid/stat from the state on; empty if there is no such process here.
func stat(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.Fields(rest)
}

// parent is a process's parent; 0 if it runs on another machine.
func parent(pid int) int {
	f := stat(pid)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return n
}

func ticks(counts ...string) (d time.Duration) {
	for _, c := range counts {
		n, err := strconv.Atoi(c)
		if err == nil {
			d += time.Duration(n) * tick
		}
	}
	return d
}
