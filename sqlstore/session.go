package sqlstore

import (
	"context"
	"time"
)

// sessionWait bounds the question below where the proxy has one session only: the second transaction then waits
// for the first.
const sessionWait = 2 * time.Second

// sharedSessions asks whether a statement that one connection prepared is still there while another one has a
// transaction open. Behind a proxy that hands out a session for each transaction it is not: the proxy
// gives the session used last to the transaction, and another one to the statement (IC-37). Found out later, under load, it
// would be an error now and then. A pool of one connection cannot be asked.
func (s *Store) sharedSessions(ctx context.Context) error {
	if s.opts.Unprepared || !s.d.sessions || s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	first, err := s.db.Conn(ctx)
	if err != nil {
		return nil // no second connection is free, or what it is will be seen at the first step
	}
	defer first.Close()
	prepared, err := first.PrepareContext(ctx, `SELECT 1`)
	if err != nil {
		return failed("prepare", err)
	}
	defer prepared.Close()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	var one int
	if err := prepared.QueryRowContext(ctx).Scan(&one); advice(sqlState(err)) != "" {
		return failed("prepare", err)
	}
	return nil
}
