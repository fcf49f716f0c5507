package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/url"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/ec2/ec2fake"
	"github.com/settle-go/settle/examples/internal/stagetest"
	"github.com/settle-go/settle/memstore"
	"github.com/settle-go/settle/providertest"
)

const account, region = "123456789012", "eu-central-1"

// The suite for adapters, through the SDK, against a local server that speaks the query protocol.
func TestLaunchAdapterTellsTheTruth(t *testing.T) {
	promise := contract(account, region)
	providertest.Run(t, providertest.Harness[Launch, Machine]{
		Local: func(testing.TB) providertest.Local {
			s := ec2fake.New(&ec2fake.Options{PageSize: 3})
			return providertest.Local{Handler: s, Effects: func(ref string) int { return s.Tagged(ownReference, ref) }}
		},
		Adapter: func(_ testing.TB, w providertest.Wire) settle.ProviderAdapter[Launch, Machine] {
			return newAdapter(newClient(aws.CredentialsProviderFunc(local), w.URL, w.Transport, promise), promise)
		},
		Request: func(n int) Launch {
			return Launch{Image: "ami-0abcdef123456789" + string(rune('0'+n%10)), Type: []string{"t3.micro", "m7g.large"}[n%2], Zone: "eu-central-1" + string(rune('a'+n%26))}
		},
		Key: providertest.InForm("ClientToken"), Reference: providertest.InForm("TagSpecification.1.Tag.1.Value"),
		Creates: func(s providertest.Sent) bool {
			form, err := url.ParseQuery(string(s.Body))
			return err != nil || form.Get("Action") != "DescribeInstances"
		},
		Echo: providertest.Echo{
			Account: []string{"ownerId"}, Other: map[string][]string{"image": {"imageId"}, "type": {"instanceType"}, "zone": {"availabilityZone"}},
			Rewrite: rewriteXML,
		},
		Answers: answers(), PageSize: 3, Secrets: []string{"local-secret-key", "AKIDLOCAL"},
	})
}

// rewriteXML puts value into every element with one of the names.
func rewriteXML(body []byte, names []string, value string) []byte {
	for _, name := range names {
		body = regexp.MustCompile("<"+name+">[^<]*</"+name+">").ReplaceAll(body, []byte("<"+name+">"+value+"</"+name+">"))
	}
	return body
}

// answers are EC2's documented error codes (docs.aws.amazon.com, "Error codes for the Amazon EC2 API").
func answers() []providertest.Answer {
	answer := func(status int, code string, want settle.Fact) providertest.Answer {
		var text bytes.Buffer
		if err := xml.EscapeText(&text, []byte(code)); err != nil {
			panic(err)
		}
		return providertest.Answer{
			Name: code, Status: status, Want: want, Header: map[string]string{"Content-Type": "text/xml;charset=UTF-8"},
			Body: `<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>` + text.String() + `</Code><Message>m</Message></Error></Errors><RequestID>r</RequestID></Response>`,
		}
	}
	later := answer(400, "InvalidParameterValue", settle.NotApplied)
	later.Name, later.Again = "invalid, on a later attempt", true
	capacity := answer(500, "InsufficientInstanceCapacity", settle.NotApplied)
	capacity.RetryAfter = time.Minute
	return []providertest.Answer{
		answer(400, "InvalidAMIID.NotFound", settle.Declined),
		answer(400, "InstanceLimitExceeded", settle.Declined),
		answer(400, "VcpuLimitExceeded", settle.Declined),
		later, capacity,
		answer(400, "IdempotentParameterMismatch", settle.Unclear),
		answer(409, "ResourceConflict", settle.Unclear),
		answer(503, "RequestLimitExceeded", settle.NotApplied),
		{Name: "429", Status: 429, Header: map[string]string{"Content-Type": "text/xml"}, Body: answer(429, "RequestLimitExceeded", "").Body, Want: settle.NotApplied},
		answer(401, "AuthFailure", settle.NotApplied),
		answer(403, "UnauthorizedOperation", settle.NotApplied),
		answer(400, "RequestExpired", settle.NotApplied),
		answer(500, "InternalError", settle.Unclear),
		answer(503, "Unavailable", settle.Unclear),
		answer(400, "SomethingNew", settle.Unclear),
	}
}

// world is EC2, a network and a database in a bubble with a clock of its own.
type world struct {
	t     *testing.T
	cloud *ec2fake.Server
	x     *settle.Executor[Launch, Machine]
}

func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, cloud: ec2fake.New(nil)}
		transport := stagetest.Serve(t, w.cloud).Transport()
		t.Cleanup(transport.CloseIdleConnections)
		promise := contract(account, region)
		engine, err := settle.Open(memstore.New(nil), &settle.Options{Scope: "platform"})
		if err != nil {
			t.Fatal(err)
		}
		api := newClient(aws.CredentialsProviderFunc(local), "http://ec2.example", transport, promise)
		if w.x, err = settle.New(engine, "launch", newAdapter(api, promise), nil); err != nil {
			t.Fatal(err)
		}
		stagetest.Work(t, engine)
		f(t, w)
	})
}

func (w *world) launch() (settle.Outcome[Machine], error) {
	return w.x.Execute(w.t.Context(), settle.Operation[Launch]{
		Subject: "runner-17", Purpose: "launch", Request: Launch{Image: "ami-0abcdef1234567890", Type: "t3.micro", Zone: "eu-central-1a"},
	})
}

// ends waits, checks the outcome, that there are so many instances, and that every request was the same one (I2).
func (w *world) ends(want settle.State, instances int) settle.Record {
	w.t.Helper()
	time.Sleep(30 * time.Minute) // the bubble's
	synctest.Wait()
	rec, err := w.x.Find(w.t.Context(), settle.Intent{Subject: "runner-17", Purpose: "launch"})
	if err != nil {
		w.t.Fatal(err)
	}
	if rec.State != want || len(w.cloud.Instances()) != instances {
		w.t.Errorf("%s with %d instances, want %s with %d", rec.State, len(w.cloud.Instances()), want, instances)
	}
	runs := w.cloud.Runs()
	for _, r := range runs {
		if r.Encode() != runs[0].Encode() || r.Get("ClientToken") == "" || len(r.Get("ClientToken")) > 64 {
			w.t.Errorf("another request: %v", r)
		}
	}
	return rec
}

// The instance is pending, then running: an operation of minutes.
func TestPendingThenRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if _, err := w.launch(); !errors.Is(err, settle.ErrProcessing) {
			t.Fatal(err)
		}
		w.cloud.SetState(w.cloud.Instances()[0].ID, "running", "")
		w.ends(settle.StateSucceeded, 1)
		if out, err := w.launch(); err != nil || !out.Replayed {
			t.Error(err)
		}
	})
}

// The reply is lost; the filter by client token finds it.
func TestLostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.cloud.Script(ec2fake.Fault{Lose: true})
		_, _ = w.launch()
		if len(w.cloud.Instances()) != 1 {
			t.Fatal("the request did not arrive")
		}
		w.cloud.SetState(w.cloud.Instances()[0].ID, "running", "")
		w.ends(settle.StateSucceeded, 1)
		if n := len(w.cloud.Runs()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// The SDK repeats nothing by itself: each request is one attempt of the record, also where its own rules would try three times.
func TestRetriesAreOurs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.cloud.Script(ec2fake.Fault{Status: 503, Code: "RequestLimitExceeded"}, ec2fake.Fault{Status: 500, Code: "InternalError"}, ec2fake.Fault{Status: 503, Code: "Unavailable"})
		out, err := w.launch()
		if !errors.Is(err, settle.ErrPending) || len(w.cloud.Runs()) != 1 || len(out.Attempts) != 1 {
			t.Errorf("%d requests for %d attempts: %v", len(w.cloud.Runs()), len(out.Attempts), err)
		}
		for range 60 { // minutes of the bubble, until a request goes well
			if len(w.cloud.Instances()) > 0 {
				w.cloud.SetState(w.cloud.Instances()[0].ID, "running", "")
				break
			}
			time.Sleep(time.Minute)
		}
		rec := w.ends(settle.StateSucceeded, 1)
		if len(rec.Attempts) != len(w.cloud.Runs()) {
			t.Errorf("%d requests for %d attempts", len(w.cloud.Runs()), len(rec.Attempts))
		}
	})
}

// A token that is known with other parameters proves that a request exists; it is nobody's failure, and nothing is sent under a fresh one.
func TestParameterMismatchIsUnclear(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		mismatch := ec2fake.Fault{Status: 400, Code: "IdempotentParameterMismatch"}
		w.cloud.Script(mismatch, mismatch, mismatch, mismatch, mismatch, mismatch, mismatch, mismatch)
		if _, err := w.launch(); !errors.Is(err, settle.ErrUnknown) {
			t.Errorf("%v", err)
		}
		w.ends(settle.StateReview, 0)
	})
}

// An instance that was accepted and is terminated for want of capacity is no success.
func TestTerminatedBeforeItRan(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, _ = w.launch()
		w.cloud.SetState(w.cloud.Instances()[0].ID, "terminated", "Server.InsufficientInstanceCapacity")
		w.ends(settle.StateFailed, 1)
		if _, err := w.launch(); !errors.Is(err, settle.ErrFailed) {
			t.Error(err)
		}
	})
}

// The program itself, as `go run ./ec2` runs it.
func TestProgram(t *testing.T) {
	stagetest.Says(t, run, "EC2 has 1 instance")
}
