package providertest_test

// The adapter, the local provider and the test of docs/adapter-authors.md. The provider
// is made up; unlike the simulator it takes forms with the key inside, has decimal
// amounts, and cannot search.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/settle-go/settle"
	pt "github.com/settle-go/settle/providertest"
)

type Transfer struct {
	Amount   decimal.Decimal `json:"amount"`
	Currency string          `json:"currency"`
	To       string          `json:"to"`
}

type Sent struct {
	ID string `json:"id"`
}

func NewAdapter(base, token string, via http.RoundTripper) settle.Adapter[Transfer, Sent] {
	bank := newBank(base, token, via)
	return settle.Adapter[Transfer, Sent]{
		Promise: settle.Contract{
			Account:     settle.AccountFacts{Provider: "bank", Account: "main", Mode: "live"},
			Keys:        settle.Keys{Window: 7 * 24 * time.Hour, MaxLen: 64, Alphabet: settle.AlphabetURL},
			Lookup:      settle.Eventual,
			LookupLag:   time.Minute,
			SettleDelay: 2 * time.Minute,
			Deadline:    20 * time.Second,
			Source:      "API reference, page Transfers",
			Checked:     "2026-11-02",
		},
		TermsFunc: func(op settle.Operation[Transfer]) settle.Terms {
			return settle.Terms{Amount: settle.Major(op.Request.Amount, op.Request.Currency)}
		},
		SubmitFunc: func(ctx context.Context, c *settle.Call[Transfer]) (settle.Observation[Sent], error) {
			t, err := bank.create(ctx, url.Values{
				"request_id": {c.Key()}, "memo": {c.ID}, // byte for byte; the lookup needs the memo
				"amount": {c.Request.Amount.String()}, "currency": {c.Request.Currency}, "to": {c.Request.To},
			})
			if err != nil {
				return explain(err)
			}
			return observe(t), nil
		},
		LookupFunc: func(ctx context.Context, c *settle.Call[Transfer]) (settle.Observation[Sent], error) {
			for page, pages := 1, 1; page <= pages; page++ {
				list, err := bank.list(ctx, page)
				if err != nil {
					return settle.Observation[Sent]{}, err // what was not seen is not "not found"
				}
				for _, t := range list.Items {
					if t.Memo == c.ID || t.ID == c.Ref {
						return observe(t), nil
					}
				}
				pages = list.Pages
			}
			return settle.Observation[Sent]{Fact: settle.NotFound}, nil
		},
	}
}

// observe reports what the bank says, raw.
func observe(t transfer) settle.Observation[Sent] {
	o := settle.Observation[Sent]{
		Ref: t.ID, Result: Sent{ID: t.ID},
		Terms: settle.Terms{Amount: settle.Major(t.Amount, t.Currency)},
	}
	switch t.Status {
	case "booked":
		o.Fact = settle.Applied
	case "pending":
		o.Fact = settle.Underway
	case "returned":
		o.Fact = settle.Reversed
	} // anything else proves nothing
	return o
}

// explain says what an error proves: most prove nothing.
func explain(err error) (settle.Observation[Sent], error) {
	var refused *bankError
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return settle.Observation[Sent]{Fact: settle.NotSent, Code: "dial"}, nil
	case !errors.As(err, &refused):
		return settle.Observation[Sent]{}, err
	}
	o := settle.Observation[Sent]{Code: refused.Code}
	switch refused.Code {
	case "insufficient_funds", "unknown_recipient":
		o.Fact = settle.Declined
	case "rate_limited", "bad_token":
		o.Fact = settle.NotApplied
		o.RetryAfter = refused.RetryAfter
	} // 409 request_in_progress, request_id_reused, and all that is not documented: Unclear
	return o, nil
}

// What follows is the bank's SDK, and a fake of the bank.

type transfer struct {
	ID       string          `json:"id"`
	Memo     string          `json:"memo"`
	Status   string          `json:"status"`
	Amount   decimal.Decimal `json:"amount"`
	Currency string          `json:"currency"`
}

type transferPage struct {
	Items []transfer `json:"items"`
	Pages int        `json:"pages"`
}

type bankError struct {
	Status     int
	Code       string
	RetryAfter time.Duration
}

func (e *bankError) Error() string { return fmt.Sprintf("bank: status %d %s", e.Status, e.Code) }

type bankClient struct {
	base, token string
	http        *http.Client
}

func newBank(base, token string, via http.RoundTripper) *bankClient {
	return &bankClient{base, token, &http.Client{
		Transport:     via,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (b *bankClient) create(ctx context.Context, form url.Values) (transfer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+"/transfers", strings.NewReader(form.Encode()))
	if err != nil {
		return transfer{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var out transfer
	return out, b.do(r, &out)
}

func (b *bankClient) list(ctx context.Context, page int) (transferPage, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/transfers?page=%d", b.base, page), nil)
	if err != nil {
		return transferPage{}, err
	}
	var out transferPage
	err = b.do(r, &out)
	if err == nil && out.Pages < 1 {
		err = errors.New("bank: a list without a number of pages")
	}
	return out, err
}

func (b *bankClient) do(r *http.Request, out any) error {
	r.SetBasicAuth("main", b.token)
	res, err := b.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		e := &bankError{Status: res.StatusCode}
		var said struct {
			Error string `json:"error"`
		}
		if json.NewDecoder(res.Body).Decode(&said) == nil {
			e.Code = said.Error
		}
		if s, err := time.ParseDuration(res.Header.Get("Retry-After") + "s"); err == nil {
			e.RetryAfter = s
		}
		return e
	}
	return json.NewDecoder(res.Body).Decode(out)
}

type fakeBank struct {
	mu    sync.Mutex
	made  []transfer
	byKey map[string]int
}

const bankPage = 4

func (b *fakeBank) Effects(memo string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, t := range b.made {
		if t.Memo == memo {
			n++
		}
	}
	return n
}

func (b *fakeBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method == http.MethodGet {
		var page int
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		from, to := min(max(page-1, 0)*bankPage, len(b.made)), min(page*bankPage, len(b.made))
		_ = json.NewEncoder(w).Encode(transferPage{b.made[from:to], max(1, (len(b.made)+bankPage-1)/bankPage)})
		return
	}
	key := r.PostFormValue("request_id")
	i, ok := b.byKey[key]
	if !ok {
		amount, err := decimal.NewFromString(r.PostFormValue("amount"))
		if err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		i = len(b.made)
		b.made = append(b.made, transfer{
			ID: fmt.Sprintf("tr_%d", i+1), Memo: r.PostFormValue("memo"), Status: "booked", Amount: amount, Currency: r.PostFormValue("currency"),
		})
		if b.byKey == nil {
			b.byKey = map[string]int{}
		}
		b.byKey[key] = i
	}
	_ = json.NewEncoder(w).Encode(b.made[i])
}

func TestAdapter(t *testing.T) {
	pt.Run(t, pt.Harness[Transfer, Sent]{
		Local: func(testing.TB) pt.Local {
			bank := &fakeBank{}
			return pt.Local{Handler: bank, Effects: bank.Effects}
		},
		Adapter: func(_ testing.TB, w pt.Wire) settle.ProviderAdapter[Transfer, Sent] {
			return NewAdapter(w.URL, "secret-token", w.Transport)
		},
		Request: func(n int) Transfer {
			return Transfer{decimal.New(1000+int64(n), -2), []string{"EUR", "JPY", "KWD"}[n%3], "NL91ABNA0417164300"}
		},
		Key: pt.InForm("request_id"), Reference: pt.InForm("memo"),
		Echo: pt.Echo{Amount: []string{"amount"}, Currency: []string{"currency"}},
		Answers: []pt.Answer{
			{Name: "no money", Status: 422, Body: `{"error":"insufficient_funds"}`, Want: settle.Declined},
			{Name: "no such account", Status: 422, Body: `{"error":"unknown_recipient"}`, Want: settle.Declined},
			{Name: "running", Status: 409, Body: `{"error":"request_in_progress"}`},
			{Name: "other parameters", Status: 409, Body: `{"error":"request_id_reused"}`},
			{Name: "too fast", Status: 429, Body: `{"error":"rate_limited"}`, Header: map[string]string{"Retry-After": "3"}, RetryAfter: 3 * time.Second, Want: settle.NotApplied},
			{Name: "token", Status: 401, Body: `{"error":"bad_token"}`, Want: settle.NotApplied},
		},
		PageSize: bankPage,
	})
}

// TestTheWalkThroughIsThisFile: each block of Go code in the walk-through of the
// documentation is code of this file, and its table names every rule.
func TestTheWalkThroughIsThisFile(t *testing.T) {
	doc, err := os.ReadFile("../docs/adapter-authors.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("walkthrough_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, ok := strings.Cut(string(doc), "## An adapter, step by step\n")
	if !ok {
		t.Fatal("docs/adapter-authors.md has no walk-through")
	}
	blocks := 0
	for i, part := range strings.Split(walk, "```") {
		code, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		for piece := range strings.SplitSeq(code, "// …\n") {
			if !strings.Contains(squeeze(string(own)), squeeze(piece)) {
				t.Errorf("docs/adapter-authors.md shows code that is not in this file:\n%s", piece)
			}
		}
	}
	if blocks < 3 {
		t.Errorf("the walk-through has %d blocks of code", blocks)
	}
	for _, id := range pt.Cases() {
		rule, name, _ := strings.Cut(id, "/")
		if !strings.Contains(walk, "| `"+rule+"` |") || !strings.Contains(walk, "`"+name+"`") {
			t.Errorf("docs/adapter-authors.md does not list %s", id)
		}
	}
}

// squeeze leaves out what a different indentation changes.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
