package settle

import (
	"context"
	"errors"
)

// A dead letter is the record that keeps an operation's place in the feed, in review: the next message was set aside, and
// what comes after it waits.

// redriveFeed makes a message that was set aside due at once. done is false if there is none.
func (e *Engine) redriveFeed(ctx context.Context, operation string, by By, may permit) (done bool, err error) {
	place, err := e.get(ctx, ByID(feedID(operation)))
	if err != nil {
		return false, e.storeError("redrive", FeedKind, operation, err)
	}
	_, err = e.update(ctx, "redrive", &place, func(next *Record) (*edit, error) {
		if done = next.State == StateReview; !done {
			return nil, errStop
		}
		next.Review, next.Tries, next.Waits = nil, 0, 0
		return may.signed(&edit{now: next.AsOf, entry: Entry{
			Source: SourcePerson, Disposition: DispositionControl, Code: CodeRedriven, Actor: by.Actor, Note: by.Reason,
		}}), nil
	})
	e.Wake()
	return done, err
}

// resolveFeed is Resolve for such a record: Resume tries the message again, as Redrive does; Applied says that
// those who wait for it know, and the feed goes on behind it.
func (e *Engine) resolveFeed(ctx context.Context, place Record, d Decision, may permit) (Record, error) {
	entry := Entry{Source: SourcePerson, Fact: d.Fact, Actor: d.Actor, Note: d.Reason + " — " + d.Evidence, Disposition: DispositionControl}
	may.sign(&entry)
	for range 16 {
		if place.State != StateReview {
			return place, &Error{Do: "resolve", Kind: FeedKind, ID: place.ID, State: place.State, Err: ErrSettled, Cause: because("no message was set aside")}
		}
		next := place.fork()
		next.Review, next.Tries, next.Waits, next.State = nil, 0, 0, StateCreated
		entry.From, entry.To = place.State, next.State
		writes := []Write{{Record: next, IfVersion: place.Version, Entry: entry}}
		if d.Fact == Applied {
			w, err := e.skip(ctx, place.Subject)
			if err != nil {
				return place, e.storeError("resolve", FeedKind, place.ID, err)
			}
			w.Entry.Actor, w.Entry.Rule, w.Entry.Note = entry.Actor, entry.Rule, "message_skipped"
			writes = []Write{w, writes[0]}
		}
		recs, err := e.commit(ctx, Change{ID: newToken(), Writes: writes}, e.opts.StoreTimeout)
		var conflict *ConflictError
		switch {
		case err == nil:
			for i := range writes {
				e.report(ctx, &writes[i], &recs[i])
			}
			e.Wake()
			return recs[len(writes)-1], nil
		case !errors.As(err, &conflict):
			return place, e.storeError("resolve", FeedKind, place.ID, err)
		}
		if place, err = e.get(ctx, ByID(place.ID)); err != nil {
			return place, e.storeError("resolve", FeedKind, place.ID, err)
		}
	}
	return place, &Error{Do: "resolve", Kind: FeedKind, ID: place.ID, State: place.State, Err: ErrStore, Code: "contention"}
}

// skip is the write that counts the next message of an operation as delivered.
func (e *Engine) skip(ctx context.Context, operation string) (Write, error) {
	sctx, cancel := e.storeCtx(ctx)
	defer cancel()
	op, err := e.store.Get(sctx, ByID(operation))
	if err != nil {
		return Write{}, err
	}
	m := messages{op: &op, prior: op.Feed.Done}
	for after := m.after(); ; {
		entries, err := e.store.History(sctx, operation, after, feedPage)
		if err != nil {
			return Write{}, err
		}
		for _, x := range entries {
			after = x.Seq
			if msg, ok := m.add(x); ok {
				op.Feed.Done = msg.Sequence
				return Write{
					Record: op, IfVersion: op.Version, DueIn: Keep,
					Entry: Entry{From: op.State, To: op.State, Source: SourcePerson, Disposition: DispositionControl},
				}, nil
			}
		}
		if len(entries) < feedPage {
			return Write{}, ErrNotFound
		}
	}
}

// mindFeed notices that nobody decided in time about a message that was set aside (I10). It does not try it.
func (e *Engine) mindFeed(ctx context.Context, place *Record, c *claim) error {
	_, err := e.update(ctx, "publish", place, func(next *Record) (*edit, error) {
		if next.Token != c.token {
			return nil, errStop
		}
		next.Token = ""
		ed := &edit{now: c.late(), dueIn: reviewInterval, ifToken: c.token, entry: Entry{Source: SourceWorker, Disposition: DispositionControl, Note: "set_aside"}}
		if ed.minds(next); next.Review != nil && next.Review.Overdue {
			ed.dueIn = Never
		}
		return ed, nil
	})
	return err
}
