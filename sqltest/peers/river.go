package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// queued is a unique River job per payment, worked in this process; a payment is made when its job is
// completed in the database.
type queued struct {
	client *river.Client[pgx.Tx]
	stop   func()

	mu   sync.Mutex
	wait map[int64]chan struct{} // by job; closed when it is completed
}

// payJob is unique by all of its arguments.
type payJob struct {
	Order string `json:"order" river:"unique"`
}

func (payJob) Kind() string { return "pay" }

// plainJob is one that need not be unique.
type plainJob struct {
	Order string `json:"order"`
}

func (plainJob) Kind() string { return "plain" }

type plainWorker struct {
	river.WorkerDefaults[plainJob]
	b *bench
}

func (w *plainWorker) Work(ctx context.Context, job *river.Job[plainJob]) error {
	_, err := w.b.charge(ctx, job.Args.Order)
	return err
}

type payWorker struct {
	river.WorkerDefaults[payJob]
	b *bench
}

func (w *payWorker) Work(ctx context.Context, job *river.Job[payJob]) error {
	_, err := w.b.charge(ctx, job.Args.Order)
	return err
}

func newRiver(ctx context.Context, b *bench) (system, error) {
	q, err := openRiver(ctx, b)
	if err != nil {
		return nil, err
	}
	return q, q.start(ctx)
}

// openRiver makes a client whose worker does not run yet.
func openRiver(ctx context.Context, b *bench) (*queued, error) {
	driver := riverpgxv5.New(b.pool)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &payWorker{b: b})
	river.AddWorker(workers, &plainWorker{b: b})
	client, err := river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}},
		FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return &queued{client: client, stop: func() {}, wait: map[int64]chan struct{}{}}, nil
}

// start works, tuned for throughput.
func (q *queued) start(ctx context.Context) error {
	events, unsubscribe := q.client.SubscribeConfig(&river.SubscribeConfig{
		Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 100_000,
	})
	go func() {
		for e := range events {
			if e.Job.Kind == (payJob{}).Kind() {
				close(q.of(e.Job.ID))
			}
		}
	}()
	q.stop = unsubscribe
	return q.client.Start(ctx)
}

func (q *queued) of(job int64) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.wait[job]
	if !ok {
		c = make(chan struct{})
		q.wait[job] = c
	}
	return c
}

func (q *queued) insert(ctx context.Context, order string) (id int64, known bool, err error) {
	r, err := q.client.Insert(ctx, payJob{order}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
	if err != nil {
		return 0, false, err
	}
	return r.Job.ID, r.UniqueSkippedAsDuplicate, nil
}

func (q *queued) pay(ctx context.Context, order string) error {
	id, known, err := q.insert(ctx, order)
	switch {
	case err != nil:
		return err
	case known:
		return errors.New("known")
	}
	select {
	case <-q.of(id):
	case <-ctx.Done():
		return ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.wait, id)
	return nil
}

func (q *queued) again(ctx context.Context, order string) error {
	_, known, err := q.insert(ctx, order)
	if err == nil && !known {
		err = errors.New("not known")
	}
	return err
}

func (q *queued) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = q.client.Stop(ctx)
	q.stop()
}
