package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"github.com/settle-go/settle"
)

const due = 10_000

// sweep measures what looking for due work costs beside few and beside many settled rows.
func sweep(ctx context.Context, s settings) error {
	fmt.Printf("\nThe sweep, median (slowest) of %d:\n\n| settled rows | a poll, nothing due | a claim of 100 of %d due | claimed per second by 4 workers | claimed twice |\n|---|---|---|---|---|\n",
		100, due)
	for _, rows := range []int{s.rows / 10, s.rows} {
		if err := sweepBeside(ctx, s, rows); err != nil {
			return err
		}
	}
	return nil
}

func sweepBeside(ctx context.Context, s settings, rows int) error {
	b, _, drop, err := fresh(ctx, s, 0)
	if err != nil {
		return err
	}
	defer drop()
	x, err := openSettled(ctx, b)
	if err != nil {
		return err
	}
	defer x.close()
	if err := x.fill(ctx, rows); err != nil {
		return err
	}
	claim := func(token string) ([]settle.Record, error) {
		return x.store.Claim(ctx, settle.Claim{Kinds: []string{"charge"}, Token: token, Lease: time.Hour, Limit: 100})
	}
	var polls, claims []time.Duration
	for i := range 100 {
		began := time.Now()
		recs, err := claim("poll-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		polls = append(polls, time.Since(began))
		if len(recs) != 0 {
			return errors.New("something is due")
		}
	}
	if err := x.register(ctx, "first-", due); err != nil {
		return err
	}
	for i := range due / 100 {
		began := time.Now()
		recs, err := claim("claim-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		claims = append(claims, time.Since(began))
		if len(recs) != 100 {
			return fmt.Errorf("%d claimed", len(recs))
		}
	}
	if err := x.register(ctx, "second-", due); err != nil {
		return err
	}
	var mu sync.Mutex
	seen := make(map[string]int)
	errs := make(chan error, 4)
	began := time.Now()
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				recs, err := claim(fmt.Sprint("worker-", w, "-", i))
				if err != nil || len(recs) == 0 {
					errs <- err
					return
				}
				mu.Lock()
				for _, r := range recs {
					seen[r.ID]++
				}
				mu.Unlock()
			}
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			return err
		}
	}
	took := time.Since(began)
	if len(seen) != due {
		return fmt.Errorf("%d of %d claimed", len(seen), due)
	}
	twice := 0
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	poll, slowPoll := spread(polls)
	one, slowOne := spread(claims)
	fmt.Printf("| %d | %s (%s) | %s (%s) | %.0f | %d |\n", rows, poll, slowPoll, one, slowOne, due/took.Seconds(), twice)
	return nil
}

// fill settles one payment and copies it.
func (s *settled) fill(ctx context.Context, rows int) error {
	if err := s.pay(ctx, "settled"); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, `INSERT INTO settle_operation (id, scope, key, kind, subject, purpose, retired, hold, account, refs, state,
			version, token, due, created_at, updated_at, body, request, result, write_id, entry, write_id_2, at_2, entry_2, fixed, same)
		SELECT convert_to(md5(n::text), 'UTF8'), scope, key, kind, convert_to('copy-' || md5(n::text), 'UTF8'), purpose, retired, NULL, account, refs, state,
			version, token, due, created_at, updated_at, body, request, result, write_id, entry, write_id_2, at_2, entry_2, fixed, same
		FROM settle_operation, generate_series(1, $1::int) n WHERE subject = 'settled'`, rows)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `VACUUM ANALYZE`)
	return err
}

// register stores payments and lets nobody work on them.
func (s *settled) register(ctx context.Context, prefix string, n int) error {
	errs := make(chan error, 16)
	for w := range 16 {
		go func() {
			for i := w; i < n; i += 16 {
				if _, err := s.pays.Register(ctx, operation(prefix+strconv.Itoa(i))); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 16 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// worker measures how fast stored work is done: from the start of the worker until all is settled.
func worker(ctx context.Context, s settings) error {
	const jobs = 20_000
	fmt.Printf("\nA worker with %d stored payments, provider 0s:\n\n| system | per second |\n|---|---|\n", jobs)
	var rates [2][]float64
	for range s.rounds {
		for i, run := range []func(context.Context, settings, int) (time.Duration, error){workSettled, workRiver} {
			took, err := run(ctx, s, jobs)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], jobs/took.Seconds())
		}
	}
	for i, name := range []string{"settle", "River"} {
		slices.Sort(rates[i])
		fmt.Printf("| %s | %.0f |\n", name, rates[i][len(rates[i])/2])
	}
	return nil
}

func workSettled(ctx context.Context, s settings, jobs int) (time.Duration, error) {
	b, _, drop, err := fresh(ctx, s, 0)
	if err != nil {
		return 0, err
	}
	defer drop()
	x, err := openSettled(ctx, b)
	if err != nil {
		return 0, err
	}
	defer x.close()
	if err := x.register(ctx, "job-", jobs); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	began := time.Now()
	go func() { ran <- x.engine.Run(ctx) }()
	for {
		var left int
		if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM settle_operation WHERE state <> 'succeeded'`).Scan(&left); err != nil {
			cancel()
			return 0, err
		}
		if left == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(began)
	cancel()
	return took, <-ran
}

func workRiver(ctx context.Context, s settings, jobs int) (time.Duration, error) {
	b, _, drop, err := fresh(ctx, s, 0)
	if err != nil {
		return 0, err
	}
	defer drop()
	q, err := openRiver(ctx, b)
	if err != nil {
		return 0, err
	}
	defer q.close()
	params := make([]river.InsertManyParams, 0, 1000)
	for i := range jobs {
		if params = append(params, river.InsertManyParams{Args: plainJob{strconv.Itoa(i)}}); len(params) == cap(params) {
			if _, err := q.client.InsertManyFast(ctx, params); err != nil {
				return 0, err
			}
			params = params[:0]
		}
	}
	began := time.Now()
	if err := q.start(ctx); err != nil {
		return 0, err
	}
	for {
		var left int
		if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&left); err != nil {
			return 0, err
		}
		if left == 0 {
			return time.Since(began), nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// spread is the median and the longest.
func spread(times []time.Duration) (half, most time.Duration) {
	slices.Sort(times)
	return times[len(times)/2].Round(time.Microsecond), times[len(times)-1].Round(time.Microsecond)
}
