// Command ec2 launches a machine through Amazon's own SDK: the reply is lost, the process asks what became of it by the client
// token, and there is one instance.
//
//	go run ./ec2
//
// The adapter is in launch.go. Here EC2 is a local server that speaks its query protocol, package ec2fake.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	_ "modernc.org/sqlite" // the database driver; sqlstore works with any

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/examples/ec2/ec2fake"
	"github.com/settle-go/settle/sqlstore"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "ec2")
	if err == nil {
		err = errors.Join(run(ctx, os.Stdout, filepath.Join(dir, "machines.db")), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ec2: FAILED:", err)
		os.Exit(1)
	}
}

// local are credentials for the local server.
func local(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIDLOCAL", SecretAccessKey: "local-secret-key"}, nil
}

func run(ctx context.Context, out io.Writer, file string) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	cloud := ec2fake.New(nil)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: cloud, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	db, err := sql.Open("sqlite", sqlstore.DSN(file))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlstore.EnsureSchema(ctx, db, sqlstore.SQLite()); err != nil {
		return err
	}
	store, err := sqlstore.New(db, sqlstore.SQLite(), nil)
	if err != nil {
		return err
	}
	engine, err := settle.Open(store, &settle.Options{Scope: "platform"})
	if err != nil {
		return err
	}
	promise := contract("123456789012", "eu-central-1")
	api := newClient(aws.CredentialsProviderFunc(local), "http://"+listener.Addr().String(), http.DefaultTransport, promise)
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
