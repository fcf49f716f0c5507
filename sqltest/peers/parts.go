package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"
)

// first measures payments that nobody made before, the systems in turn, round after round.
func first(ctx context.Context, s settings, provider time.Duration, callers []int) error {
	all, err := stands(ctx, s, provider, makers())
	defer end(all)
	if err != nil {
		return err
	}
	var orders serial
	pay := func(x stand) func(ctx context.Context, _ int) error {
		return func(ctx context.Context, _ int) error { return x.sys.pay(ctx, orders.next()) }
	}
	for _, x := range all { // connections, statements, caches
		if _, err := drive(ctx, x.m, 64, time.Second, pay(x)); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	for _, n := range callers {
		fmt.Printf("\nFirst payments, provider %s, %d callers:\n\n%s\n", provider, n, head)
		if err := table(ctx, s, all, n, pay); err != nil {
			return err
		}
	}
	return nil
}

// beside measures payments that nobody made before, with random keys, where many others are stored already.
func beside(ctx context.Context, s settings) error {
	all, err := stands(ctx, s, 0, makers()[:2])
	defer end(all)
	if err != nil {
		return err
	}
	for _, x := range all {
		if err := x.sys.(interface {
			fill(context.Context, int) error
		}).fill(ctx, s.rows); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	pay := func(x stand) func(ctx context.Context, _ int) error {
		return func(ctx context.Context, _ int) error { return x.sys.pay(ctx, rand.Text()) }
	}
	fmt.Printf("\nFirst payments beside %d settled ones, random keys, 64 callers:\n\n%s\n", s.rows, head)
	return table(ctx, s, all, 64, pay)
}

// replay measures payments that were made before.
func replay(ctx context.Context, s settings) error {
	all, err := stands(ctx, s, 0, makers())
	defer end(all)
	if err != nil {
		return err
	}
	const known = 1000
	for _, x := range all {
		errs := make(chan error, known)
		for i := range known {
			go func() { errs <- x.sys.pay(ctx, fmt.Sprint("known-", i)) }()
		}
		for range known {
			if err := <-errs; err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
		}
	}
	var n atomic.Int64
	again := func(x stand) func(ctx context.Context, _ int) error {
		return func(ctx context.Context, _ int) error { return x.sys.again(ctx, fmt.Sprint("known-", n.Add(1)%known)) }
	}
	for _, callers := range []int{1, 8, 64} {
		fmt.Printf("\nReplays, %d callers:\n\n%s\n", callers, head)
		if err := table(ctx, s, all, callers, again); err != nil {
			return err
		}
	}
	return nil
}

// table runs every system and prints a row of each.
func table(ctx context.Context, s settings, all []stand, callers int, do func(stand) func(context.Context, int) error) error {
	runs := make([][]result, len(all))
	for range s.rounds {
		for i, x := range all {
			r, err := drive(ctx, x.m, callers, s.span, do(x))
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			runs[i] = append(runs[i], r)
		}
	}
	floor := middle(runs[0]).rate()
	for i, x := range all {
		fmt.Println(middle(runs[i]).row(x.name, floor))
	}
	return nil
}

// one measures 64 callers of one operation: from one process, then from two engines that share
// nothing but the database, as two processes do.
func one(ctx context.Context, s settings) error {
	const provider = 20 * time.Millisecond
	b, _, drop, err := fresh(ctx, s, provider)
	if err != nil {
		return err
	}
	defer drop()
	x, err := openSettled(ctx, b)
	if err != nil {
		return err
	}
	defer x.close()
	y, err := openSettled(ctx, b)
	if err != nil {
		return err
	}
	defer y.close()
	fmt.Printf("\n64 callers of one payment, provider %s, over %d payments:\n\n| callers in | median until all are answered | longest |\n|---|---|---|\n", provider, 20*s.rounds)
	for _, c := range []struct {
		name string
		of   []*settled
	}{{"one process", []*settled{x, x}}, {"two processes", []*settled{x, y}}} {
		var times []time.Duration
		for i := range 20 * s.rounds {
			order := fmt.Sprint(c.name, i)
			began := time.Now()
			errs := make(chan error, 64)
			for n := range 64 {
				go func() { errs <- c.of[n%2].insist(ctx, order) }()
			}
			for range 64 {
				if err := <-errs; err != nil {
					return err
				}
			}
			times = append(times, time.Since(began))
		}
		half, most := spread(times)
		fmt.Printf("| %s | %s | %s |\n", c.name, half, most)
	}
	return nil
}
