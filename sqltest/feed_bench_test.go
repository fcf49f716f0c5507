package sqltest

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// counting is a publisher that takes everything at once, and says when it has a number of messages.
type counting struct {
	n    atomic.Int64
	want int64
	done chan struct{}
}

func (c *counting) Publish(context.Context, settle.Message) error {
	if c.n.Add(1) == c.want {
		close(c.done)
	}
	return nil
}

// BenchmarkFeed: first Executes without and with a feed, in turn in slices of a few hundred, and then a worker that delivers what has come
// together: two messages for each operation.
func BenchmarkFeed(b *testing.B) {
	for _, d := range databases() {
		for _, callers := range []int{1, 8} {
			b.Run(d.name+"/"+strconv.Itoa(callers), func(b *testing.B) {
				db := d.connect(b, d.fresh(b))
				db.SetMaxIdleConns(64)
				s := d.store(b, db, &sqlstore.Options{LockWait: time.Minute})
				plain := benchExecutor(b, s)
				open := func(p settle.Publisher) (*settle.Engine, *settle.Executor[benchRequest, benchReceipt]) {
					e, err := settle.Open(s, &settle.Options{Publisher: p})
					must(b, err)
					x, err := settle.New(e, "fed", instantProvider(), nil)
					must(b, err)
					return e, x
				}
				_, fed := open(settle.PublishedElsewhere{})
				slice := func(from, n int, x *settle.Executor[benchRequest, benchReceipt]) time.Duration {
					began := time.Now()
					var all sync.WaitGroup
					for c := range callers {
						all.Go(func() {
							for i := from + c; i < from+n; i += callers {
								if _, err := x.Execute(context.Background(), benchOperation(i)); err != nil {
									b.Error(err)
								}
							}
						})
					}
					all.Wait()
					return time.Since(began)
				}
				slice(1<<30, 2*callers, plain)
				slice(1<<30, 2*callers, fed)
				var without, with time.Duration
				b.ResetTimer()
				for from := 0; from < b.N; from += 512 {
					n := min(512, b.N-from)
					without += slice(from, n, plain)
					with += slice(from, n, fed)
				}
				p := &counting{want: int64(2*b.N + 4*callers), done: make(chan struct{})}
				e, _ := open(p)
				ctx, cancel := context.WithCancel(context.Background())
				over := make(chan error, 1)
				began := time.Now()
				go func() { over <- e.Run(ctx) }()
				<-p.done
				delivered := time.Since(began)
				cancel()
				must(b, <-over)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(b.N)/without.Seconds(), "without/s")
				b.ReportMetric(float64(b.N)/with.Seconds(), "with/s")
				b.ReportMetric(float64(p.n.Load())/delivered.Seconds(), "messages/s")
			})
		}
	}
}
