// Package stdwebhook verifies Standard Webhooks (www.standardwebhooks.com, version 1.0.0) for package webhook, through
// that standard's own library. It is a module of its own, so that the library never becomes a requirement of the root module.
//
//	v, err := webhook.New(stdwebhook.Scheme(), &webhook.Options{Secrets: []webhook.Secret{{Value: "whsec_…"}}})
//	h, err := webhook.NewHandler(engine, v, account, readEvent, nil)
//
// The headers webhook-id, webhook-timestamp and webhook-signature are signed together with the body; the
// id names the event and is Delivery.ID. The library decides whether a signature is right. What it leaves to its caller is
// here: one line of each header, an id without full stops, digits only for the time, secrets of the
// standard's length, and, in package webhook, several secrets and a tolerance by a given clock.
//
// Signatures with ed25519 (v1a, whpk_ keys) are passed over, since the library knows none: an endpoint that gets nothing
// else refuses everything.
package stdwebhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/settle-go/settle/webhook"
)

const (
	prefix = "whsec_"
	// The standard's lengths of a symmetric secret, in bytes.
	minSecret, maxSecret = 24, 64
	// maxSignatures bounds the work that an unverified header can ask for.
	maxSignatures = 16
)

// Scheme is the symmetric scheme, v1: HMAC-SHA256. A secret is base64 with or without the prefix whsec_, of 24 to
// 64 bytes. It is safe for concurrent use.
func Scheme() webhook.Scheme { return scheme{} }

type scheme struct{}

func (scheme) Key(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, prefix))
	switch {
	case err != nil:
		return nil, errors.New("not in base64")
	case len(key) < minSecret || len(key) > maxSecret:
		return nil, errors.New("not of 24 to 64 bytes")
	}
	return key, nil
}

func (scheme) Parse(h http.Header) (webhook.Signature, error) {
	var sig webhook.Signature
	lines := map[string]string{}
	for _, name := range []string{standard.HeaderWebhookID, standard.HeaderWebhookTimestamp, standard.HeaderWebhookSignature} {
		line, err := webhook.Only(h, name)
		if err != nil {
			return sig, err
		}
		lines[name] = line
	}
	var err error
	if sig.At, err = webhook.Seconds(lines[standard.HeaderWebhookTimestamp]); err != nil {
		return sig, err
	}
	sig.ID = lines[standard.HeaderWebhookID]
	// What is signed is id.time.body: with a full stop in the id, a delivery could be cut in another place and be another one.
	if strings.Contains(sig.ID, ".") || strings.Count(lines[standard.HeaderWebhookSignature], " ") >= maxSignatures {
		return sig, webhook.Refuse(webhook.ReasonMalformed)
	}
	only := http.Header{} // what was looked at here, and nothing else
	for name, line := range lines {
		only.Set(name, line)
	}
	sig.Verify = func(key, body []byte) bool {
		w, err := standard.NewWebhookRaw(key)
		return err == nil && w.VerifyIgnoringTimestamp(body, only) == nil // the time is for webhook.Verifier
	}
	return sig, nil
}
