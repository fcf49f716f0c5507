package sqltest

import (
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
	"github.com/gowebpki/jcs"

	"github.com/settle-go/settle/memstore"
)

// BenchmarkFingerprint: the fingerprint of a six-field payment, the encoding of the
// request included, beside what it costs to hash it without a canonical form, and with one
// by the RFC 8785 modules (which round numbers to float64, so they are no alternative).
func BenchmarkFingerprint(b *testing.B) {
	x := benchExecutor(b, memstore.New(nil))
	r := benchReq(1)
	op := benchOperation(1)
	sum := func(canonical func([]byte) ([]byte, error)) func() error {
		return func() error {
			data, err := json.Marshal(r)
			if err == nil {
				data, err = canonical(data)
			}
			sha256.Sum256(data)
			return err
		}
	}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"marshal_sha256", sum(func(data []byte) ([]byte, error) { return data, nil })},
		{"settle", func() error { _, err := x.Fingerprint(op); return err }},
		{"gowebpki_jcs", sum(jcs.Transform)},
		{"cyberphone_jcs", sum(jsoncanonicalizer.Transform)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, c.run())
			}
		})
	}
}
