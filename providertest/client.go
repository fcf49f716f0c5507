package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// APIError is an HTTP answer that is no success, as a vendor's SDK would type it.
type APIError = Fault

// Client is a small SDK for Provider.Handler. It sends each request once, as far
// as it depends on it (see Handler for http.Transport), and makes no keys.
//
// Its errors are *APIError when an answer arrived, ErrUnreadable when one arrived
// that is not understood, and else those of the transport.
type Client struct {
	base string
	http *http.Client
}

var _ API = (*Client)(nil)

// NewClient returns a client for the provider at baseURL; a nil HTTP client means
// http.DefaultClient. It follows no redirect, whatever c does: net/http would send a
// request that creates, and its key, to wherever a 307 or 308 points.
func NewClient(baseURL string, c *http.Client) *Client {
	if c == nil {
		c = http.DefaultClient
	}
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: strings.TrimSuffix(baseURL, "/"), http: &own}
}

// Params are what a caller says of a charge, refund or void.
type Params struct {
	Key       string // sent as Idempotency-Key; empty sends none
	Reference string
	Account   string
	Amount    int64 // minor units; not for voids
	Currency  string
	Extra     map[string]string
}

func (p Params) request(kind, parent string) Request {
	return Request{
		Kind: kind, Parent: parent, Key: p.Key, Reference: p.Reference, Account: p.Account,
		Amount: p.Amount, Currency: p.Currency, Extra: p.Extra,
	}
}

// CreateCharge charges.
func (c *Client) CreateCharge(ctx context.Context, p Params) (Object, error) {
	return c.Create(ctx, p.request(KindCharge, ""))
}

// CreateRefund gives back part or all of a charge.
func (c *Client) CreateRefund(ctx context.Context, chargeID string, p Params) (Object, error) {
	return c.Create(ctx, p.request(KindRefund, chargeID))
}

// VoidCharge undoes a charge that is not captured.
func (c *Client) VoidCharge(ctx context.Context, chargeID string, p Params) (Object, error) {
	return c.Create(ctx, p.request(KindVoid, chargeID))
}

// GetCharge reads a charge by its id.
func (c *Client) GetCharge(ctx context.Context, id string) (Object, error) {
	return c.get(ctx, KindCharge, id)
}

// GetRefund reads a refund by its id.
func (c *Client) GetRefund(ctx context.Context, id string) (Object, error) {
	return c.get(ctx, KindRefund, id)
}

// FindCharge reads the charges with a reference, the newest first.
func (c *Client) FindCharge(ctx context.Context, reference string) ([]Object, error) {
	return Find(ctx, c, Query{Kind: KindCharge, Reference: reference})
}

// FindRefund reads the refunds with a reference, the newest first.
func (c *Client) FindRefund(ctx context.Context, reference string) ([]Object, error) {
	return Find(ctx, c, Query{Kind: KindRefund, Reference: reference})
}

// Create sends a charge, refund or void. A Body, if set, is sent as it is.
func (c *Client) Create(ctx context.Context, req Request) (out Object, err error) {
	b := req.Body
	if b == nil {
		if b, err = req.encode(); err != nil {
			return out, fmt.Errorf("providertest: encode request: %w", err)
		}
	}
	path := "/v1/" + req.Kind + "s"
	if req.Kind == KindVoid {
		path = "/v1/charges/" + url.PathEscape(req.Parent) + "/void"
	}
	return out, c.do(ctx, http.MethodPost, path, req.Key, b, &out)
}

// Get reads an object by its id.
func (c *Client) Get(ctx context.Context, id string) (Object, error) {
	switch {
	case strings.HasPrefix(id, "re_"):
		return c.get(ctx, KindRefund, id)
	case strings.HasPrefix(id, "vd_"):
		return c.get(ctx, KindVoid, id)
	}
	return c.get(ctx, KindCharge, id)
}

func (c *Client) get(ctx context.Context, kind, id string) (out Object, err error) {
	return out, c.do(ctx, http.MethodGet, "/v1/"+kind+"s/"+url.PathEscape(id), "", nil, &out)
}

// List reads a page of objects.
func (c *Client) List(ctx context.Context, q Query) (out Page, err error) {
	if q.Kind == "" {
		q.Kind = KindCharge
	}
	v := url.Values{}
	for name, s := range map[string]string{"account": q.Account, "reference": q.Reference, "key": q.Key, "cursor": q.Cursor} {
		if s != "" {
			v.Set(name, s)
		}
	}
	return out, c.do(ctx, http.MethodGet, "/v1/"+q.Kind+"s?"+v.Encode(), "", nil, &out)
}

// Deliveries is Provider.Deliveries.
func (c *Client) Deliveries(ctx context.Context, after int) ([]Event, error) {
	var out wireEvents
	err := c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/events?after=%d", after), "", nil, &out)
	return out.Events, err
}

func (c *Client) do(ctx context.Context, method, path, key string, in []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(in))
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		e := &APIError{Status: res.StatusCode, RetryAfter: retryAfter(res.Header)}
		var w wireError
		if json.Unmarshal(b, &w) == nil { // a proxy's error page has no code
			e.Code, e.ExistingID, e.ObjectID = w.Error.Code, w.Error.ExistingID, w.Error.ObjectID
		}
		return e
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return nil
}
