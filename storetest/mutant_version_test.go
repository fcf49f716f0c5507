package storetest

import (
	"context"
	"time"

	"github.com/settle-go/settle"
)

// versionMutants tell a version that is not the record's.
func versionMutants() []mutant {
	return []mutant{
		{
			name: "the version that is told leaves claims out", cases: []string{"S11/version"},
			bend: func(b *bent) {
				b.version = func(ctx context.Context, id string) (int64, time.Time, error) {
					_, at, err := b.Store.Version(ctx, id)
					if err != nil {
						return 0, at, err
					}
					h, err := b.Store.History(ctx, id, 0, 1000)
					return int64(len(h)), at, err
				}
			},
		},
		{
			name: "the version that is told is the first that was asked for", cases: []string{"S11/version_now", "S11/version"},
			bend: func(b *bent) {
				told := map[string]int64{}
				b.version = func(ctx context.Context, id string) (v int64, at time.Time, err error) {
					if v, at, err = b.Store.Version(ctx, id); err != nil {
						return v, at, err
					}
					b.remember(func() {
						if told[id] == 0 {
							told[id] = v
						}
						v = told[id]
					})
					return v, at, nil
				}
			},
		},
		{
			name: "a version is told whatever the context says", cases: []string{"S11/version_done"},
			bend: func(b *bent) {
				b.version = func(ctx context.Context, id string) (int64, time.Time, error) {
					return b.Store.Version(context.WithoutCancel(ctx), id)
				}
			},
		},
	}
}

var _ settle.Versioner = (*bent)(nil)
