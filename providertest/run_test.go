package providertest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/settle-go/settle"
	pt "github.com/settle-go/settle/providertest"
)

func TestRunOnTheChargeAdapter(t *testing.T) {
	pt.Run(t, charges(&pt.Options{KeyWindow: 24 * time.Hour, Account: "acct_1"}))
}

// charges is a harness for ChargeAdapter in front of a Provider made with o.
func charges(o *pt.Options) pt.Harness[pt.Payment, pt.Receipt] {
	promise := pt.Promise(o)
	return pt.Harness[pt.Payment, pt.Receipt]{
		Local: func(testing.TB) pt.Local {
			p := pt.New(o)
			return pt.Local{Handler: p.Handler(), Effects: p.Effects}
		},
		Adapter: func(_ testing.TB, w pt.Wire) settle.ProviderAdapter[pt.Payment, pt.Receipt] {
			return pt.ChargeAdapter(pt.NewClient(w.URL, &http.Client{Transport: w.Transport}), promise)
		},
		Request: func(n int) pt.Payment {
			return pt.Payment{Amount: 1000 + int64(n), Currency: []string{"EUR", "JPY", "KWD"}[n%3]}
		},
		Key: pt.InHeader("Idempotency-Key"), Reference: pt.InJSON("/reference"), Account: pt.InJSON("/account"),
		Echo: pt.Echo{Amount: []string{"amount"}, Currency: []string{"currency"}, Account: []string{"account"}},
		Answers: []pt.Answer{
			{Name: "declined", Status: 402, Body: `{"error":{"code":"card_declined"}}`, Want: settle.Declined},
			{Name: "invalid", Status: 400, Body: `{"error":{"code":"invalid_request"}}`, Want: settle.Declined},
			{Name: "in flight", Status: 409, Body: `{"error":{"code":"idempotency_key_in_use"}}`},
			{Name: "other parameters", Status: 400, Body: `{"error":{"code":"idempotency_key_reused"}}`},
			{Name: "already exists", Status: 409, Again: true, Body: `{"error":{"code":"already_exists","existing_id":"{ref}"}}`, Want: settle.Applied},
			{Name: "already exists, unnamed", Status: 409, Body: `{"error":{"code":"already_exists"}}`},
			{Name: "slow down", Status: 429, Header: map[string]string{"Retry-After": "7"}, Body: `{"error":{"code":"rate_limited"}}`, Want: settle.NotApplied, RetryAfter: 7 * time.Second},
			{Name: "bad credential", Status: 401, Body: `{"error":{"code":"unauthorized"}}`, Want: settle.NotApplied},
		},
		PageSize: 3,
	}
}
