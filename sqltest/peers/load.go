package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is what a load of one system showed.
type result struct {
	n             int
	took          time.Duration
	half, percent time.Duration // p50, p99
	use           use
}

// serial numbers the orders of a run.
type serial struct{ n atomic.Int64 }

func (s *serial) next() string {
	return fmt.Sprintf("order-%08x-%d", uint32(s.n.Add(1)*2654435761), s.n.Load())
}

// drive lets callers do work for a time. The first error ends it.
func drive(ctx context.Context, m *meter, callers int, span time.Duration, do func(ctx context.Context, caller int) error) (r result, err error) {
	before, err := m.read(ctx)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	times := make([][]time.Duration, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for time.Since(began) < span && ctx.Err() == nil {
				from := time.Now()
				if err := do(ctx, c); err != nil {
					cancel(err)
					return
				}
				times[c] = append(times[c], time.Since(from))
			}
		})
	}
	all.Wait()
	r.took = time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	after, err := m.read(ctx)
	if err != nil {
		return r, err
	}
	r.use = after.minus(before)
	flat := slices.Concat(times...)
	slices.Sort(flat)
	r.n = len(flat)
	if r.n == 0 {
		return r, fmt.Errorf("nothing was done in %s", span)
	}
	r.half, r.percent = flat[r.n/2], flat[r.n*99/100]
	return r, nil
}

// middle is the run with the median throughput.
func middle(runs []result) result {
	slices.SortFunc(runs, func(a, b result) int { return int(a.rate() - b.rate()) })
	return runs[len(runs)/2]
}

func (r result) rate() float64 { return float64(r.n) / r.took.Seconds() }

func (r result) row(name string, floor float64) string {
	each := func(x float64) float64 { return x / float64(r.n) }
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	share := ""
	if floor > 0 {
		share = fmt.Sprintf("%.2f", r.rate()/floor)
	}
	return fmt.Sprintf("| %s | %.0f | %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.0f |", name, r.rate(), share, micro(r.half), micro(r.percent),
		each(r.use.writes), each(r.use.wal), each(micro(r.use.client)), each(micro(r.use.server)))
}

const head = `| system | per second | of floor | p50 µs | p99 µs | write transactions | WAL bytes | client CPU µs | server CPU µs |
|---|---|---|---|---|---|---|---|---|`
