package storetest

import (
	"context"
	"time"

	"github.com/settle-go/settle"
)

// versions spoils what Version says.
func versions(f func(b *bent, r *settle.Record)) func(*bent) {
	return func(b *bent) {
		b.version = func(ctx context.Context, id string) (settle.Record, error) {
			r, err := b.Store.Version(ctx, id)
			if err == nil {
				f(b, &r)
			}
			return r, err
		}
	}
}

// versionMutants tell a version that is not the record's.
func versionMutants() []mutant {
	first := map[string]int64{}
	return []mutant{
		{
			name: "the version that is told leaves claims out", cases: []string{"S11/version"},
			bend: versions(func(b *bent, r *settle.Record) {
				h, _ := b.Store.History(context.Background(), r.ID, 0, 1000)
				r.Version = int64(len(h))
			}),
		},
		{
			name: "the version that is told is the first that was asked for", cases: []string{"S11/version_now", "S11/version"},
			bend: versions(func(b *bent, r *settle.Record) {
				b.remember(func() {
					if first[r.ID] == 0 {
						first[r.ID] = r.Version
					}
					r.Version = first[r.ID]
				})
			}),
		},
		{
			name: "the time of the last write is told as the time of now", cases: []string{"S11/version"},
			bend: versions(func(_ *bent, r *settle.Record) { r.UpdatedAt = r.AsOf.Add(time.Microsecond) }),
		},
		{
			name: "a version is told whatever the context says", cases: []string{"S11/version_done"},
			bend: func(b *bent) {
				b.version = func(ctx context.Context, id string) (settle.Record, error) {
					return b.Store.Version(context.WithoutCancel(ctx), id)
				}
			},
		},
	}
}
