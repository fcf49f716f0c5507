package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// durable is a DBOS workflow of one step per payment.
type durable struct {
	ctx dbos.Context
	run dbos.Workflow[string, receipt]
}

func newDBOS(ctx context.Context, b *bench) (system, error) {
	dctx, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: b.pool, ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	run := func(ctx dbos.Context, order string) (receipt, error) {
		return dbos.RunAsStep(ctx, func(ctx context.Context) (receipt, error) { return b.charge(ctx, order) })
	}
	dbos.RegisterWorkflow(dctx, run)
	if err := dbos.Launch(dctx); err != nil {
		return nil, err
	}
	return &durable{dctx, run}, nil
}

func (d *durable) pay(_ context.Context, order string) error {
	h, err := dbos.RunWorkflow(d.ctx, d.run, order, dbos.WithWorkflowID(order))
	if err != nil {
		return err
	}
	_, err = h.GetResult()
	return err
}

func (d *durable) again(ctx context.Context, order string) error { return d.pay(ctx, order) }

func (d *durable) close() { _ = dbos.Shutdown(d.ctx, 5*time.Second) }
