package storetest

import (
	"context"
	"errors"

	"github.com/settle-go/settle"
)

// hooked replaces what Commit does with a change that has a hook.
func hooked(f func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error)) func(*bent) {
	return commits(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
		if c.Hook == nil {
			return b.Store.Commit(ctx, c)
		}
		return f(b, ctx, c)
	})
}

// wraps gives hooks another Tx.
func wraps(f func(b *bent, tx settle.Tx) settle.Tx) func(*bent) {
	return hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
		hook := c.Hook
		c.Hook = func(ctx context.Context, tx settle.Tx) error { return hook(ctx, f(b, tx)) }
		return b.Store.Commit(ctx, c)
	})
}

// bentTx is a Tx of which some methods were replaced; nil is its own.
type bentTx struct {
	settle.Tx
	get    func(ctx context.Context, by settle.Index) (settle.Record, error)
	commit func(ctx context.Context, c settle.Change) ([]settle.Record, error)
}

func (x *bentTx) Get(ctx context.Context, by settle.Index) (settle.Record, error) {
	if x.get == nil {
		return x.Tx.Get(ctx, by)
	}
	return x.get(ctx, by)
}

func (x *bentTx) Commit(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	if x.commit == nil {
		return x.Tx.Commit(ctx, c)
	}
	return x.commit(ctx, c)
}

// alone runs a hook in a transaction of its own.
func alone(ctx context.Context, b *bent, hook func(context.Context, settle.Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("the hook panicked")
		}
	}()
	return b.InTx(ctx, func(tx settle.Tx) error { return hook(ctx, tx) })
}

// wrote reports whether the change wrote its first record before.
func (b *bent) wrote(c settle.Change) bool {
	h, _ := b.Store.History(context.Background(), c.Writes[0].Record.ID, 0, 1<<20)
	for _, x := range h {
		if x.Write == c.ID {
			return true
		}
	}
	return false
}

func bare(c settle.Change) settle.Change {
	c.Hook = nil
	return c
}

func hookMutants() []mutant {
	return []mutant{
		{
			name: "the hook runs before the writes", cases: []string{"S27/sees_writes"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) (out []settle.Record, err error) {
				if b.wrote(c) {
					return b.Store.Commit(ctx, bare(c))
				}
				err = b.InTx(ctx, func(tx settle.Tx) (err error) {
					if err = c.Hook(ctx, tx); err != nil {
						return &settle.HookError{Err: err}
					}
					out, err = tx.Commit(ctx, bare(c))
					return err
				})
				return out, err
			}),
		},
		{
			name:  "the hook runs after the step",
			cases: []string{"S27/fails", "S27/panics", "S27/conflict_inside", "S27/unseen_by_others"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				if b.wrote(c) {
					return b.Store.Commit(ctx, bare(c))
				}
				out, err := b.Store.Commit(ctx, bare(c))
				if err != nil {
					return nil, err
				}
				// What it writes itself commits or not; it does not hold the store meanwhile.
				loose := &bentTx{get: b.Store.Get, commit: b.Store.Commit}
				if err := func() (err error) {
					defer func() {
						if p := recover(); p != nil {
							err = errors.New("the hook panicked")
						}
					}()
					return c.Hook(ctx, loose)
				}(); err != nil {
					return nil, &settle.HookError{Err: err}
				}
				return out, nil
			}),
		},
		{
			name: "what a failing hook wrote itself is kept", cases: []string{"S27/fails", "S27/panics"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				var wrote []settle.Change
				hook := c.Hook
				c.Hook = func(ctx context.Context, tx settle.Tx) error {
					return hook(ctx, &bentTx{Tx: tx, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
						wrote = append(wrote, c)
						return tx.Commit(ctx, c)
					}})
				}
				out, err := b.Store.Commit(ctx, c)
				if errors.As(err, new(*settle.HookError)) {
					for _, c := range wrote {
						_, _ = b.Store.Commit(ctx, c)
					}
				}
				return out, err
			}),
		},
		{
			name: "what the hook writes is not kept", cases: []string{"S27/commits_with"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) (out []settle.Record, err error) {
				if b.wrote(c) {
					return b.Store.Commit(ctx, bare(c))
				}
				undo := errors.New("rolled back")
				err = b.InTx(ctx, func(tx settle.Tx) error {
					if _, err := tx.Commit(ctx, bare(c)); err != nil {
						return err
					}
					if err := c.Hook(ctx, tx); err != nil {
						return &settle.HookError{Err: err}
					}
					return undo
				})
				if errors.Is(err, undo) {
					return b.Store.Commit(ctx, bare(c))
				}
				return nil, err
			}),
		},
		{
			name: "the hook's error is passed on bare", cases: []string{"S27/fails", "S27/panics"},
			bend: answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var h *settle.HookError
				if errors.As(err, &h) {
					err = h.Err
				}
				return rs, err
			}),
		},
		{
			name: "the hook's error is not told", cases: []string{"S27/fails"},
			bend: answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				if errors.As(err, new(*settle.HookError)) {
					err = &settle.HookError{Err: errors.New("the hook failed")}
				}
				return rs, err
			}),
		},
		{
			name: "a conflict of the hook's own write is the change's", cases: []string{"S27/conflict_inside"},
			bend: answers(func(_ *bent, _ settle.Change, rs []settle.Record, err error) ([]settle.Record, error) {
				var x *settle.ConflictError
				if errors.As(err, &x) {
					err = x
				}
				return rs, err
			}),
		},
		{
			name: "a panic of the hook comes through", cases: []string{"S27/panics"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				var thrown any
				hook := c.Hook
				c.Hook = func(ctx context.Context, tx settle.Tx) error {
					defer func() {
						if thrown = recover(); thrown != nil {
							panic(thrown)
						}
					}()
					return hook(ctx, tx)
				}
				out, err := b.Store.Commit(ctx, c)
				if thrown != nil {
					panic(thrown)
				}
				return out, err
			}),
		},
		{
			name: "the hook runs for a refused change too", cases: []string{"S27/not_after_refusal"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				out, err := b.Store.Commit(ctx, c)
				if errors.Is(err, settle.ErrConflict) && !errors.As(err, new(*settle.HookError)) {
					_ = alone(ctx, b, c.Hook)
				}
				return out, err
			}),
		},
		{
			name: "the hook runs again for a repeat", cases: []string{"S26/no_hook_again"},
			bend: hooked(func(b *bent, ctx context.Context, c settle.Change) ([]settle.Record, error) {
				again := b.wrote(c)
				out, err := b.Store.Commit(ctx, c)
				if again {
					_ = alone(ctx, b, c.Hook)
				}
				return out, err
			}),
		},
		{
			name: "hooks read what was read before, and the last write wins", cases: []string{"S27/together"},
			bend: func(b *bent) {
				read := map[string]settle.Record{}
				wraps(func(b *bent, tx settle.Tx) settle.Tx {
					return &bentTx{
						Tx: tx,
						get: func(ctx context.Context, by settle.Index) (r settle.Record, err error) {
							b.remember(func() {
								var ok bool
								if r, ok = read[by.Parts[0]]; !ok {
									if r, err = tx.Get(ctx, by); err == nil {
										read[by.Parts[0]] = r
									}
								}
							})
							return r, err
						},
						commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
							for i := range c.Writes {
								if now, err := tx.Get(ctx, settle.ByID(c.Writes[i].Record.ID)); err == nil {
									c.Writes[i].IfVersion = now.Version
								}
							}
							return tx.Commit(ctx, c)
						},
					}
				})(b)
			},
		},
	}
}

// txMutants spoil transactions of the application.
func txMutants() []mutant {
	return []mutant{
		{name: "a transaction's commit rolls back", cases: []string{"Tx/commit", "Tx/own_writes"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return tx, ends{end.rollback, end.rollback}
		}},
		{name: "a transaction's rollback commits", cases: []string{"Tx/rollback", "Tx/conflict"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			// What a refused change of it wrote before the refusal is there too.
			return &bentTx{Tx: tx, commit: piecemeal(tx)}, ends{end.commit, end.commit}
		}},
		{name: "a transaction does not see its own writes", cases: []string{"Tx/own_writes"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return &bentTx{Tx: tx, get: func(context.Context, settle.Index) (settle.Record, error) {
				return settle.Record{}, settle.ErrNotFound
			}}, end
		}},
		{name: "a conflict in a transaction is any error", cases: []string{"Tx/conflict", "Tx/refused_change"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return &bentTx{Tx: tx, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
				rs, err := tx.Commit(ctx, c)
				if err != nil {
					err = errors.New("statement failed")
				}
				return rs, err
			}}, end
		}},
		{name: "a refused change stays in the transaction in part", cases: []string{"Tx/refused_change"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return &bentTx{Tx: tx, commit: piecemeal(tx)}, end
		}},
		{name: "a transaction's change is not known afterwards", cases: []string{"Tx/again"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return &bentTx{Tx: tx, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
				c.ID += " in a transaction"
				return tx.Commit(ctx, c)
			}}, end
		}},
		{name: "a transaction commits each change at once", cases: []string{"Tx/unseen_by_others", "Tx/rollback"}, tx: func(b *bent, _ settle.Tx, end ends) (settle.Tx, ends) {
			_ = end.rollback()
			nothing := func() error { return nil }
			return &bentTx{get: b.Store.Get, commit: b.Store.Commit}, ends{nothing, nothing}
		}},
		{name: "a hook in a transaction is left out", cases: []string{"Tx/no_hook"}, tx: func(_ *bent, tx settle.Tx, end ends) (settle.Tx, ends) {
			return &bentTx{Tx: tx, commit: func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
				return tx.Commit(ctx, bare(c))
			}}, end
		}},
	}
}

// piecemeal makes each write of a change as one of its own.
func piecemeal(tx settle.Tx) func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
	return func(ctx context.Context, c settle.Change) ([]settle.Record, error) {
		var out []settle.Record
		for i := range c.Writes {
			rs, err := tx.Commit(ctx, settle.Change{ID: c.ID, Writes: c.Writes[i : i+1]})
			if err != nil {
				return nil, err
			}
			out = append(out, rs...)
		}
		return out, nil
	}
}
