// Command ec2 launches a machine through Amazon's own SDK: the reply is lost, the process asks what became of it by the client
// token, and there is one instance.
//
//	go run ./ec2
//
// The adapter is in launch.go. Here EC2 is a local server that speaks its query protocol, package ec2fake.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/ec2/ec2fake"
	"github.com/settle-go/settle/examples/internal/stage"
)

func main() { stage.Main("ec2", run) }

// local are credentials for the local server.
func local(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIDLOCAL", SecretAccessKey: "local-secret-key"}, nil
}

func run(ctx context.Context, out io.Writer, dir string) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	cloud := ec2fake.New(nil)
	url, closeServer, err := stage.Serve(ctx, cloud)
	if err != nil {
		return err
	}
	defer closeServer()
	db, store, err := stage.Open(ctx, filepath.Join(dir, "machines.db"), "")
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := settle.Open(store, &settle.Options{Scope: "platform"})
	if err != nil {
		return err
	}
	promise := contract("123456789012", "eu-central-1")
	api := newClient(aws.CredentialsProviderFunc(local), url, http.DefaultTransport, promise)
	launches, err := settle.New(engine, "launch", newAdapter(api, promise), nil)
	if err != nil {
		return err
	}

	cloud.Script(ec2fake.Fault{Lose: true})
	op := settle.Operation[Launch]{
		Subject: "build-runner-17", Purpose: "launch", Request: Launch{Image: "ami-0abcdef1234567890", Type: "t3.micro", Zone: "eu-central-1a"},
	}
	say("Launch a t3.micro for build-runner-17. The reply is lost.")
	got, err := launches.Execute(ctx, op)
	say("  => %s: %s", got.State, got.Next.Advice())
	if !errors.Is(err, settle.ErrPending) {
		return fmt.Errorf("the instance is pending, and the outcome is %w", err)
	}
	cloud.SetState(cloud.Instances()[0].ID, "running", "")
	say("The instance comes up. Ask for it again.")
	for {
		if got, err = launches.Execute(ctx, op); !errors.Is(err, settle.ErrPending) {
			break
		}
		time.Sleep(50 * time.Millisecond) // the same call again: that is always safe
	}
	if err != nil {
		return err
	}
	machine, _ := got.Result()
	say("  => %s: %s. EC2 has %d instance.", got.State, machine.ID, len(cloud.Instances()))
	if n := len(cloud.Instances()); n != 1 {
		return fmt.Errorf("%d instances", n)
	}
	return engine.Drain(ctx)
}
