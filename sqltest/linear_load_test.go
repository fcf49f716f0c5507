package sqltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settle-go/settle"
)

// load says how histories are made. Zero fields have defaults.
type load struct {
	seed    uint64 // of the first round; the next ones count up. Defaults to a random one
	rounds  int    // each on stores of its own; defaults to 1
	clients int    // who call at the same time; defaults to 4
	calls   int    // of each client; defaults to 50
	records int    // that they share; defaults to 3
	// short are leases, and times until something is due, that end within a round as often as
	// not. Others last for an hour, or are over at once.
	short []time.Duration
	// twice: a write looks at the clock for its guard and again for its own time, as the MySQL family does; it
	// holds the row's lock from the first to the second.
	twice bool
}

func (l load) withDefaults() load {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&l.rounds, 1)
	def(&l.clients, 4)
	def(&l.calls, 50)
	def(&l.records, 3)
	if l.seed == 0 {
		l.seed = rand.Uint64()
	}
	if len(l.short) == 0 {
		l.short = []time.Duration{time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond}
	}
	return l
}

// recording is what the clients of one round saw, by record.
type recording struct {
	load
	stores []settle.Store
	tick   atomic.Int64 // orders calls and returns
	late   atomic.Int64 // the latest time of the store's clock that a call has returned, in microseconds
	zero   int64        // the store's time when it began, from which the others are counted
	names  atomic.Int64

	mu      sync.Mutex
	ops     map[string][]porcupine.Operation
	unknown int
	seen    map[string]int // how often each kind of call had each answer
}

// record makes the history of one round.
func (l load) record(t testing.TB, stores []settle.Store, seed uint64) *recording {
	t.Helper()
	h := &recording{load: l, stores: stores, ops: map[string][]porcupine.Operation{}, seen: map[string]int{}}
	first, err := stores[0].Commit(t.Context(), settle.Change{ID: "clock", Writes: []settle.Write{{Record: h.fresh("clock"), DueIn: settle.Never}}})
	if err != nil {
		t.Fatal(err)
	}
	h.zero = first[0].AsOf.UnixMicro()
	var wg sync.WaitGroup
	for n := range l.clients {
		wg.Go(func() {
			c := &client{
				recording: h, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))),
				store: stores[n%len(stores)], last: map[string]settle.Record{},
			}
			for range l.calls {
				c.call(t.Context())
			}
		})
	}
	wg.Wait()
	return h
}

func (h *recording) fresh(id string) settle.Record {
	return settle.Record{
		ID: id, Scope: "shop", Kind: "charge", Key: "key-" + id, Subject: "order-" + id, Purpose: "purchase",
		Account: "acme/acct-1//test", Request: settle.Payload(`{"amount":1}`), State: settle.StateCreated,
	}
}

func (h *recording) ids() []string {
	out := make([]string, h.records)
	for i := range out {
		out[i] = fmt.Sprintf("r%d", i+1)
	}
	return out
}

// name is new in every call: r2, t3.
func (h *recording) name(what string) string { return fmt.Sprint(what, h.names.Add(1)) }

// now is the store's time that a record shows, from the beginning of the round.
func (h *recording) now(at time.Time) int64 { return at.UnixMicro() - h.zero }

// learn notes a time of the store's clock.
func (h *recording) learn(r settle.Record) lifeSeen {
	seen := lifeSeen{version: r.Version, token: r.Token, code: r.Code, never: r.Due.IsZero(), asOf: h.now(r.AsOf)}
	if !seen.never {
		seen.due = h.now(r.Due)
	}
	for {
		was := h.late.Load()
		if was >= seen.asOf || h.late.CompareAndSwap(was, seen.asOf) {
			return seen
		}
	}
}

// client is one of those who call at the same time.
type client struct {
	*recording
	n      int
	rng    *rand.Rand
	store  settle.Store
	last   map[string]settle.Record // as this client saw them last, which may be long ago
	repeat []settle.Change          // that were answered with an error, or not
}

// errNoAnswer is the answer to a call that this client made, or did not make.
var errNoAnswer = errors.New("no answer")

// begun is a call that is under way.
type begun struct {
	ctx    context.Context
	lo     int64
	call   int64
	back   int64 // when it returned; zero: now
	lost   bool  // its answer is
	cancel context.CancelFunc
	done   chan struct{}
}

// begin starts the clock of a call, and draws what becomes of it: a few never reach the
// store, a few lose their answer, and of a few the context ends on the way.
func (c *client) begin(ctx context.Context) (b begun, reaches bool) {
	b = begun{ctx: ctx, lo: c.late.Load(), call: c.tick.Add(1), cancel: func() {}}
	switch p := c.rng.IntN(100); {
	case p < 3:
		return b, false
	case p < 9:
		b.lost = true
	case p < 14:
		b.ctx, b.cancel = context.WithCancel(ctx)
		b.done = make(chan struct{})
		steps, cancel, done := c.rng.IntN(60), b.cancel, b.done
		go func() {
			defer close(done)
			for range steps {
				runtime.Gosched()
			}
			cancel()
		}()
	}
	return b, true
}

// end is what the client sees of the answer.
func (b begun) end(err error) error {
	if b.done != nil {
		<-b.done
	}
	b.cancel()
	if b.lost {
		return errNoAnswer
	}
	return err
}

// note adds a call and its answer to the history of a record.
func (c *client) note(b begun, call *lifeCall, a *lifeAnswer) {
	call.lo, call.twice = b.lo, c.twice
	op := porcupine.Operation{ClientId: c.n, Input: call, Call: b.call, Output: a, Return: b.back}
	if op.Return == 0 {
		op.Return = c.tick.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.result == resultUnknown {
		c.unknown++
		op.Return, op.ClientId = math.MaxInt64, c.clients+c.unknown // a line of its own: the client goes on
	}
	c.ops[call.id] = append(c.ops[call.id], op)
	c.seen[call.do+" "+string(a.result)]++
}

// resultOf is what the error means; the contract lists the others (S6).
func resultOf(err error) verdict {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, settle.ErrConflict):
		return resultConflict
	case errors.Is(err, settle.ErrNotFound):
		return resultNotFound
	case errors.Is(err, settle.ErrClaimLost):
		return resultLost
	}
	return resultUnknown
}

// call makes one call, drawn by chance.
func (c *client) call(ctx context.Context) {
	for range c.rng.IntN(8) {
		runtime.Gosched() // a store in memory is so fast that its clients hardly meet
	}
	ids := c.ids()
	id := ids[c.rng.IntN(len(ids))]
	r, known := c.last[id]
	switch p := c.rng.IntN(100); {
	case p < 15 || !known && p < 40:
		c.get(ctx, id)
	case p < 20:
		c.list(ctx)
	case p < 26:
		c.history(ctx, id)
	case p < 30 || !known && p < 60:
		c.create(ctx, id)
	case p < 50:
		c.claim(ctx)
	case p < 62 && len(c.repeat) > 0:
		c.again(ctx)
	case p < 75:
		c.renew(ctx, id, r)
	default:
		c.update(ctx, id, r)
	}
}

// span is a lease, or a time until something is due.
func (c *client) span() time.Duration {
	if c.rng.IntN(3) == 0 {
		return time.Hour
	}
	return c.short[c.rng.IntN(len(c.short))]
}

func (c *client) dueIn() time.Duration {
	switch c.rng.IntN(8) {
	case 0:
		return settle.Never
	case 1, 2, 3:
		return settle.Keep
	case 4, 5:
		return 0
	default:
		return c.span()
	}
}

func (c *client) get(ctx context.Context, id string) {
	b, reaches := c.begin(ctx)
	if !reaches {
		return // a read that nobody answered says nothing
	}
	r, err := c.store.Get(b.ctx, settle.ByID(id))
	err = b.end(err)
	a := &lifeAnswer{result: resultOf(err)}
	switch a.result {
	case resultOK:
		a.rec = c.learn(r)
		c.last[id] = r
	case resultNotFound:
	case resultConflict, resultLost, resultUnknown:
		return
	}
	c.note(b, &lifeCall{do: "get", id: id}, a)
}

// list is a read of every record at once.
func (c *client) list(ctx context.Context) {
	b, reaches := c.begin(ctx)
	if !reaches {
		return
	}
	rs, err := c.store.List(b.ctx, settle.Query{Kind: "charge"})
	if b.end(err) != nil {
		return
	}
	found := map[string]settle.Record{}
	for _, r := range rs {
		found[r.ID] = r
	}
	for _, id := range c.ids() {
		a := &lifeAnswer{result: resultNotFound}
		if r, ok := found[id]; ok {
			a.result, a.rec = resultOK, c.learn(r)
		}
		c.note(b, &lifeCall{do: "get", id: id}, a)
	}
}

func (c *client) history(ctx context.Context, id string) {
	b, reaches := c.begin(ctx)
	if !reaches {
		return
	}
	entries, err := c.store.History(b.ctx, id, 0, 10_000)
	if b.end(err) != nil {
		return
	}
	a := &lifeAnswer{result: resultOK}
	for _, e := range entries {
		a.log += logged(e.Seq, e.Write)
	}
	c.note(b, &lifeCall{do: "history", id: id}, a)
}

func (c *client) create(ctx context.Context, id string) {
	ch := settle.Change{ID: c.name("w")}
	w := settle.Write{Record: c.fresh(id), DueIn: c.dueIn()}
	if c.rng.IntN(2) == 0 { // as Execute does: with a claim
		w.Record.Token, w.DueIn = c.name("t"), c.span()
	}
	w.Record.Code = ch.ID
	ch.Writes = []settle.Write{w}
	c.commit(ctx, ch)
}

func (c *client) update(ctx context.Context, id string, r settle.Record) {
	ch := settle.Change{ID: c.name("w")}
	w := settle.Write{Record: r.Clone(), IfVersion: r.Version, DueIn: c.dueIn()}
	if r.Version == 0 {
		w.Record, w.IfVersion = c.fresh(id), 1 // which may not be there
	}
	if r.Token != "" && c.rng.IntN(3) > 0 {
		w.IfToken = r.Token
		if c.rng.IntN(2) == 0 {
			w.Record.Token = "" // ends its claim
		}
	}
	w.Record.Code = ch.ID
	ch.Writes = []settle.Write{w}
	c.commit(ctx, ch)
}

// again commits a change once more under its id (S26).
func (c *client) again(ctx context.Context) {
	i := c.rng.IntN(len(c.repeat))
	ch := c.repeat[i]
	c.repeat = append(c.repeat[:i], c.repeat[i+1:]...)
	c.commit(ctx, ch)
}

func (c *client) commit(ctx context.Context, ch settle.Change) {
	w := ch.Writes[0]
	call := &lifeCall{
		do: "update", id: w.Record.ID, change: ch.ID, ifVersion: w.IfVersion, ifToken: w.IfToken,
		token: w.Record.Token, due: w.DueIn,
	}
	if w.IfVersion == 0 {
		call.do = "create"
	}
	b, reaches := c.begin(ctx)
	var rs []settle.Record
	err := errNoAnswer
	if reaches {
		rs, err = c.store.Commit(b.ctx, ch)
		err = b.end(err)
	}
	a := &lifeAnswer{result: resultOf(err)}
	var conflict *settle.ConflictError
	switch {
	case err == nil:
		a.rec = c.learn(rs[0])
		c.last[call.id] = rs[0]
	case errors.As(err, &conflict):
		a.rec = c.learn(conflict.Existing)
		c.last[call.id] = conflict.Existing
	}
	if a.result == resultUnknown && c.rng.IntN(4) > 0 || a.result == resultOK && c.rng.IntN(10) == 0 {
		c.repeat = append(c.repeat, ch)
	}
	c.note(b, call, a)
}

func (c *client) claim(ctx context.Context) {
	call := lifeCall{do: "claim", token: c.name("t"), due: c.span()}
	b, reaches := c.begin(ctx)
	var rs []settle.Record
	err := errNoAnswer
	if reaches {
		rs, err = c.store.Claim(b.ctx, settle.Claim{
			Kinds: []string{"charge"}, Token: call.token, Lease: call.due, Limit: 1 + c.rng.IntN(c.records),
		})
		err = b.end(err)
	}
	if err != nil { // it may have any of them
		for _, id := range c.ids() {
			x := call
			x.id = id
			c.note(b, &x, &lifeAnswer{result: resultUnknown})
		}
		return
	}
	for _, r := range rs {
		x := call
		x.id = r.ID
		c.last[r.ID] = r
		c.note(b, &x, &lifeAnswer{result: resultOK, rec: c.learn(r)})
	}
}

func (c *client) renew(ctx context.Context, id string, r settle.Record) {
	call := &lifeCall{do: "renew", id: id, token: r.Token, due: c.span()}
	if call.token == "" || c.rng.IntN(10) == 0 {
		call.token = "nobody"
	}
	b, reaches := c.begin(ctx)
	err := errNoAnswer
	if reaches {
		err = b.end(renew(b.ctx, c.store, id, call.token, call.due))
	}
	b.back = c.tick.Add(1)
	a := &lifeAnswer{result: resultOf(err)}
	if a.result != resultUnknown {
		now, err := c.store.Get(ctx, settle.ByID("clock"))
		if err != nil {
			a.result = resultUnknown
		} else {
			a.hi = c.learn(now).asOf
		}
	}
	c.note(b, call, a)
}
