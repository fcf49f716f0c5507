// Command lostreply shows the problem that settle solves, and the solution, with
// real processes, a real kill -9 and a database file:
//
//	go run ./lostreply
//
// A caller asks a payment provider for a charge. The provider makes it, and the
// reply is lost. Part 1 does what is done everywhere: it tries again. Part 2
// lets settle do it, although the caller is killed on top of that.
//
// The program starts itself again in other roles, each a process of its own:
// the provider (provider.go) and the callers (caller.go). It exits with an error
// if the provider's books are not as it says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

func main() {
	var err error
	switch role, args := split(os.Args[1:]); role {
	case "":
		err = demo()
	case "provider":
		err = provider(args[0], args[1])
	case "naive":
		err = naive(args[0])
	case "settle":
		err = withSettle(args[0], args[1], args[2])
	default:
		err = fmt.Errorf("no arguments, please (got %q)", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lostreply: FAILED:", err)
		os.Exit(1)
	}
}

func split(args []string) (string, []string) {
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// demo is the role of the stage manager: it starts the others, kills one of them,
// and audits the provider's books.
func demo() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "lostreply")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	s.print("A shop charges a customer 19.99 EUR for order-8472. The provider makes the charge,",
		"and the reply gets lost. The shop sees an error. Was the customer charged, or not?")
	if err := part1(s, dir); err != nil {
		return fmt.Errorf("part 1: %w", err)
	}
	if err := part2(s, dir); err != nil {
		return fmt.Errorf("part 2: %w", err)
	}
	s.print("", "Both parts ended as told: two charges without settle, one with it.")
	return nil
}

// part1 has a caller without settle lose one reply.
func part1(s *stage, dir string) error {
	s.print("", "PART 1: without settle. No reply, so the shop tries again.", "")
	bank, url, err := s.startProvider("drop", filepath.Join(dir, "ledger-1.jsonl"))
	if err != nil {
		return err
	}
	defer bank.stop()
	shop, err := s.start("shop", "naive", url)
	if err != nil {
		return err
	}
	if err := shop.wait(); err != nil {
		return fmt.Errorf("the naive caller: %w", err)
	}
	return audit(s, url, 2, "The customer paid TWICE. The first charge had worked; only its reply was lost.")
}

// part2 has a caller with settle lose the reply, and its life.
func part2(s *stage, dir string) error {
	s.print("", "PART 2: with settle. The reply is lost, and the shop's process is killed while it waits.", "")
	bank, url, err := s.startProvider("stall", filepath.Join(dir, "ledger-2.jsonl"))
	if err != nil {
		return err
	}
	defer bank.stop()
	file := filepath.Join(dir, "shop.db")

	a, err := s.start("shop A", "settle", "shop A", file, url)
	if err != nil {
		return err
	}
	if _, err := s.await("charged", a); err != nil { // the provider says so, when its books are on disk
		return err
	}
	s.say("demo", "kill -9 %d, while shop A waits for the reply", a.cmd.Process.Pid)
	if err := a.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = a.wait() // it was killed: the state below tells how
	s.say("demo", "shop A is gone (%v). Nobody is left who knows what it sent.", a.cmd.ProcessState)
	if a.cmd.ProcessState.Success() {
		return errors.New("shop A ended by itself, it should have been killed")
	}
	if _, err := showDatabase(s, file); err != nil {
		return err
	}
	s.say("demo", "That was on disk before the request left. The key is made from what the payment is")
	s.say("demo", "for, so every process makes the same one. A new process pays the order again:")

	for _, name := range []string{"shop B", "shop C"} {
		p, err := s.start(name, "settle", name, file, url)
		if err != nil {
			return err
		}
		if err := p.wait(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	states, err := showDatabase(s, file)
	if err != nil {
		return err
	}
	if err := showHistory(s, file); err != nil {
		return err
	}
	if err := audit(s, url, 1, "The customer paid ONCE, and the shop knows it."); err != nil {
		return err
	}
	return checkStates(states)
}

// audit prints the provider's books and holds them against what should be there.
func audit(s *stage, url string, want int, moral string) error {
	charges, err := fetchLedger(s.ctx, url)
	if err != nil {
		return err
	}
	s.print("", "  The provider's ledger:")
	for _, c := range charges {
		s.print(fmt.Sprintf("    %-5s %s  key %s", c.ID, money(c.Amount, c.Currency), c.Key))
	}
	if err := checkLedger(charges, want); err != nil {
		return err
	}
	s.print("  => " + moral)
	return nil
}

// checkLedger and checkStates are the verdict of the whole demonstration.
func checkLedger(charges []providertest.Object, want int) error {
	if len(charges) != want {
		return fmt.Errorf("the provider's ledger has %d charges, and should have %d", len(charges), want)
	}
	return nil
}

func checkStates(stored []settle.State) error {
	if len(stored) != 1 || stored[0] != settle.StateSucceeded {
		return fmt.Errorf("the shop's database should hold one payment that succeeded, and holds %v", stored)
	}
	return nil
}

func fetchLedger(ctx context.Context, url string) ([]providertest.Object, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ledger", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var books struct{ Objects []providertest.Object }
	err = json.NewDecoder(res.Body).Decode(&books)
	return books.Objects, err
}

func money(minor int64, currency string) string {
	return fmt.Sprintf("%d.%02d %s", minor/100, minor%100, currency)
}
