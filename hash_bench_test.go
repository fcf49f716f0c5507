package settle

import (
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/shopspring/decimal"
)

type benchPayment struct {
	Order    string          `json:"order_id"`
	Amount   decimal.Decimal `json:"amount"`
	Currency string          `json:"currency"`
	Customer string          `json:"customer"`
	Minor    int64           `json:"minor_units"`
	Capture  bool            `json:"capture"`
}

var benchRequest = benchPayment{"order-8472", decimal.RequireFromString("129.95"), "EUR", "cus_81239", 12995, true}

// BenchmarkFingerprint is what a request costs before anything is stored,
// beside the least it could cost. The aim is at most 2.5 times the baseline.
func BenchmarkFingerprint(b *testing.B) {
	b.Run("settle", func(b *testing.B) {
		h, err := newHashRule(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			data, err := encodeRequest(&benchRequest)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := h.sum(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("volatile", func(b *testing.B) {
		h, err := newHashRule([]string{"/customer", "/lines/*/memo"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			data, _ := encodeRequest(&benchRequest)
			if _, err := h.sum(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("baseline", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data, err := json.Marshal(&benchRequest)
			if err != nil {
				b.Fatal(err)
			}
			_ = sha256.Sum256(data)
		}
	})
}

func BenchmarkProviderKey(b *testing.B) {
	for name, maxLen := range map[string]int{"literal": 255, "hashed": 32} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := deriveProviderKey(maxLen, "", "acme", "charge", "k", "order-8472-order-8472", "0"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
