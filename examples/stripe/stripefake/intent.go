package stripefake

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The payment methods that do not simply succeed. The names are those of Stripe's documentation for tests.
const (
	Visa              = "pm_card_visa"
	Declined          = "pm_card_visa_chargeDeclined"
	InsufficientFunds = "pm_card_visa_chargeDeclinedInsufficientFunds"
	NeedsAuth         = "pm_card_authenticationRequired"
	Slow              = "pm_usBankAccount_processing" // stays in processing until Decide
)

// intent is a PaymentIntent.
type intent struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountReceived int64             `json:"amount_received"`
	Capturable     int64             `json:"amount_capturable"`
	CancelReason   *string           `json:"cancellation_reason"`
	Currency       string            `json:"currency"`
	Status         string            `json:"status"`
	Created        int64             `json:"created"`
	Livemode       bool              `json:"livemode"`
	Customer       *string           `json:"customer"`
	Metadata       map[string]string `json:"metadata"`
	ClientSecret   string            `json:"client_secret"`
	LastError      *wireError        `json:"last_payment_error"`
	NextAction     any               `json:"next_action"`

	at   time.Time
	hold bool // the money is only held
}

func (i *intent) when() time.Time { return i.at }

// Movement is one line of the ledger: money that moved. Refunds are negative.
type Movement struct {
	ID        string // of the PaymentIntent or refund
	Intent    string
	Amount    int64 // minor units
	Currency  string
	Operation string // the own reference in the metadata, whatever its name
}

// Ledger returns the money that moved, in order.
func (s *Server) Ledger() []Movement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ledger)
}

// Effects counts the movements of money under an own reference.
func (s *Server) Effects(operation string) int {
	n := 0
	for _, m := range s.Ledger() {
		if m.Operation == operation {
			n++
		}
	}
	return n
}

// Charge makes a payment that succeeded, as if somebody else had, and returns its id.
func (s *Server) Charge(amount int64, currency string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	i := &intent{ID: s.id("pi"), Object: "payment_intent", Amount: amount, Currency: currency, Created: now.Unix(), at: now}
	s.intents = append(s.intents, i)
	s.succeed(i, amount)
	return i.ID
}

// Intents returns the ids of all PaymentIntents, in order of creation.
func (s *Server) Intents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, i := range s.intents {
		ids = append(ids, i.ID)
	}
	return ids
}

// ForgetKeys makes the server forget all keys, as it may once they are KeyAge old.
func (s *Server) ForgetKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys)
}

func (s *Server) createIntent(form url.Values, f Fault) execute {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	metadata := metadata(form)
	return execute{
		check: func() *answer {
			var a answer
			switch {
			case err != nil || amount <= 0:
				a = fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Code: "parameter_invalid_integer", Message: "Invalid integer", Param: "amount"})
			case len(form.Get("currency")) != 3 || strings.ToLower(form.Get("currency")) != form.Get("currency"):
				a = fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Message: "Invalid currency", Param: "currency"})
			case form.Get("confirm") == "true" && !strings.HasPrefix(form.Get("payment_method"), "pm_"):
				a = fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Code: "resource_missing", Message: "No such PaymentMethod", Param: "payment_method"})
			default:
				return nil
			}
			return &a
		},
		run: func() answer {
			now := s.opts.Now()
			i := &intent{
				ID: s.id("pi"), Object: "payment_intent", Amount: amount, Currency: form.Get("currency"),
				Status: "requires_payment_method", Created: now.Unix(), Metadata: metadata, at: now,
			}
			i.ClientSecret = i.ID + "_secret_fake"
			i.hold = form.Get("capture_method") == "manual"
			if c := form.Get("customer"); c != "" {
				i.Customer = &c
			}
			s.intents = append(s.intents, i)
			s.emit("payment_intent.created", i)
			if form.Get("confirm") != "true" {
				return ok(i)
			}
			return s.confirm(i, form.Get("payment_method"), form.Get("error_on_requires_action") == "true", cmp.Or(f.Amount, amount))
		},
	}
}

// confirm attempts the payment of amount.
func (s *Server) confirm(i *intent, method string, noAction bool, amount int64) answer {
	e := wireError{Type: "card_error", Code: "card_declined", Message: "Your card was declined."}
	switch method {
	case Declined:
		e.DeclineCode = "generic_decline"
	case InsufficientFunds:
		e.DeclineCode, e.Message = "insufficient_funds", "Your card has insufficient funds."
	case NeedsAuth:
		if !noAction {
			i.Status = "requires_action"
			i.NextAction = map[string]any{
				"type": "redirect_to_url", "redirect_to_url": map[string]string{"url": "https://hooks.stripe.example/3ds/" + i.ID},
			}
			return ok(i)
		}
		e.Code, e.DeclineCode, e.Message = "authentication_required", "authentication_required", "Your card was declined. This transaction requires authentication."
	case Slow:
		i.Status = "processing"
		s.emit("payment_intent.processing", i)
		return ok(i)
	default:
		if i.hold {
			i.Status, i.Capturable = "requires_capture", amount
			s.emit("payment_intent.amount_capturable_updated", i)
			return ok(i)
		}
		s.succeed(i, amount)
		return ok(i)
	}
	last := e
	i.LastError = &last
	s.emit("payment_intent.payment_failed", i)
	snapshot := *i
	e.PaymentIntent = &snapshot
	return fail(http.StatusPaymentRequired, e)
}

func (s *Server) succeed(i *intent, amount int64) {
	i.Status, i.AmountReceived, i.NextAction = "succeeded", amount, nil
	s.ledger = append(s.ledger, Movement{
		ID: i.ID, Intent: i.ID, Amount: amount, Currency: i.Currency, Operation: reference(i.Metadata),
	})
	s.charged(i)
	s.emit("payment_intent.succeeded", i)
}

// Decide ends the processing of a PaymentIntent: it succeeds, or is declined.
func (s *Server) Decide(id string, succeeds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := find(s.intents, func(i *intent) bool { return i.ID == id })
	switch {
	case i == nil:
	case succeeds:
		s.succeed(i, i.Amount)
	default:
		i.Status, i.LastError = "requires_payment_method", &wireError{
			Type: "card_error", Code: "payment_intent_payment_attempt_failed", Message: "The payment failed.",
		}
		s.emit("payment_intent.payment_failed", i)
	}
}

func (s *Server) retrieveIntent(r *http.Request, _ url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := find(s.intents, func(i *intent) bool { return i.ID == r.PathValue("id") }); i != nil {
		return ok(i)
	}
	return refusal(http.StatusNotFound, "invalid_request_error", "resource_missing", "No such payment_intent")
}

func (s *Server) listIntents(_ *http.Request, q url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return page(s, "/v1/payment_intents", s.intents, q, func(i *intent) (string, bool) {
		c := q.Get("customer")
		return i.ID, c == "" || i.Customer != nil && *i.Customer == c
	})
}

func find[T any](all []T, is func(T) bool) (none T) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return none
}

// metadata collects the members metadata[name] of a form.
func metadata(form url.Values) map[string]string {
	out := map[string]string{}
	for k := range form {
		if name, isMeta := strings.CutPrefix(k, "metadata["); isMeta && strings.HasSuffix(name, "]") {
			out[strings.TrimSuffix(name, "]")] = form.Get(k)
		}
	}
	return out
}

// reference is the value of the only metadata entry, for the ledger.
func reference(m map[string]string) string {
	for _, v := range m {
		return v
	}
	return ""
}
