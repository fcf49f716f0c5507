package sqltest

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settle-go/settle"
)

// BenchmarkReport holds reports of several lengths against as many operations, both ways, and prints lines per
// second and how far the heap rose above what it was before. SETTLE_REPORT_LINES chooses one length.
func BenchmarkReport(b *testing.B) {
	sizes := []int{10_000, 100_000, 1_000_000}
	if s := os.Getenv("SETTLE_REPORT_LINES"); s != "" {
		n, err := strconv.Atoi(s)
		must(b, err)
		sizes = []int{n}
	}
	for _, d := range []database{sqliteDatabase(), postgresDatabase()} {
		for _, n := range sizes {
			b.Run(d.name+"/"+strconv.Itoa(n), func(b *testing.B) { benchReport(b, d, n) })
		}
	}
}

func benchReport(b *testing.B, d database, n int) {
	b.Helper()
	_, s := d.open(b, d.fresh(b), nil)
	account := settle.AccountFacts{Provider: "bench"}.String()
	ids := reportOperations(b, s, n, account)
	e, err := settle.Open(s, nil)
	must(b, err)
	lines := func(_ context.Context, from int64) iter.Seq2[settle.ReportLine, error] {
		return func(yield func(settle.ReportLine, error) bool) {
			for i := from; i < int64(n); i++ {
				l := settle.ReportLine{Operation: ids(int(i)), Ref: fmt.Sprintf("ch_%d", i), Terms: settle.Terms{Amount: settle.Minor(1999, "EUR")}}
				switch i % 100_000 { // one in 50,000 differs
				case 77:
					continue
				case 177:
					l.Terms.Amount = settle.Minor(1, "EUR")
				}
				if !yield(l, nil) {
					return
				}
			}
		}
	}
	var top atomic.Uint64
	for b.Loop() {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		base := m.HeapAlloc
		look := func() {
			runtime.ReadMemStats(&m)
			top.Store(max(top.Load(), m.HeapAlloc-min(base, m.HeapAlloc)))
		}
		found := 0
		sum, err := e.ReconcileReport(b.Context(), lines, &settle.ReportOptions{
			Account: account, Kinds: []string{"charge"}, Until: time.Now().Add(2 * time.Hour), ReadOnly: true, SaveEvery: 1000,
			Found: func(context.Context, settle.Finding) error { found++; return nil },
			Save:  func(context.Context, []byte) error { look(); return nil },
		})
		must(b, err)
		if want := 2 * ((n + 99_999) / 100_000); found != want || sum.Checked != int64(n) {
			b.Fatalf("%d findings, want %d; %+v", found, want, sum)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(top.Load())/(1<<20), "heap-MB")
	b.ReportMetric(0, "ns/op")
}

// reportOperations stores n charges that succeeded.
func reportOperations(b *testing.B, s settle.Store, n int, account string) (ids func(int) string) {
	b.Helper()
	began := time.Now().Add(-time.Minute).UnixMilli()
	ids = func(i int) string { return fmt.Sprintf("%08x-%04x-7000-8000-%012x", began>>16, began&0xffff, i) }
	const batch, fillers = 1000, 4
	var all sync.WaitGroup
	for f := range fillers {
		all.Go(func() {
			for i := f * batch; i < n; i += fillers * batch {
				c := settle.Change{ID: fmt.Sprintf("fill-%d", i)}
				for j := i; j < min(n, i+batch); j++ {
					c.Writes = append(c.Writes, settle.Write{Record: reportOperation(ids(j), j, account), DueIn: settle.Never, Entry: settle.Entry{
						To: settle.StateSucceeded, Fact: settle.Applied,
					}})
				}
				if _, err := s.Commit(b.Context(), c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return ids
}

func reportOperation(id string, n int, account string) settle.Record {
	r := created(strconv.Itoa(n))
	r.ID, r.Kind, r.Account, r.Key, r.Hold, r.State = id, "charge", account, "", "", settle.StateSucceeded
	r.Terms = settle.Terms{Amount: settle.Minor(1999, "EUR")}
	r.Attempts = []settle.Attempt{{N: 1, Fate: settle.FateApplied}}
	r.References = []settle.Reference{{Ref: fmt.Sprintf("ch_%d", n), Rank: settle.RankSucceeded, Terms: r.Terms}}
	return r
}
