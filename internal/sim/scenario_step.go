package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/providertest"
)

// step does one line of a scenario.
func (w *sceneWorld) step(line string) error {
	f := strings.Fields(line)
	switch {
	case len(f) == 0, strings.HasPrefix(line, "#"), f[0] == "always", f[0] == "hook" && len(f) == 1, f[0] == "retention":
		return nil
	case f[0] == "provider" && strings.Contains(line, "="):
		return nil
	case f[0] == "provider":
		return w.providerStep(f[1:])
	case f[0] == "hook" && len(f) == 3 && f[1] == "fails":
		n, err := strconv.Atoi(f[2])
		w.hookBad = n
		return err
	case f[0] == "next":
		return w.nextStep(f[1:])
	case f[0] == "wait" && len(f) == 2:
		d, err := time.ParseDuration(f[1])
		time.Sleep(d)
		return err
	case f[0] == "expect":
		return w.expect(f[1:])
	case strings.HasSuffix(f[0], ":"):
		return w.procStep(strings.TrimSuffix(f[0], ":"), f[1:])
	}
	return errors.New("no such step")
}

// providerStep is something that happens at the provider by itself.
func (w *sceneWorld) providerStep(f []string) error {
	switch {
	case len(f) == 2 && f[0] == "finishes":
		return w.provider.Finish(f[1])
	case len(f) == 3 && f[0] == "declines":
		return w.provider.Fail(f[1], f[2])
	case len(f) == 2 && f[0] == "forgets" && f[1] == "keys":
		w.provider.ForgetKeys()
		return nil
	}
	if ok, err := w.lifeProvider(f); ok {
		return err
	}
	return errors.New("no such step")
}

// nextStep scripts what befalls the next request that nothing is scripted for yet.
func (w *sceneWorld) nextStep(f []string) error {
	duration := func(s string) time.Duration { d, _ := time.ParseDuration(s); return d }
	switch text := strings.Join(f, " "); {
	case text == "reply lost":
		w.provider.Script(providertest.DropReply())
	case text == "request lost":
		w.provider.Script(providertest.DropRequest())
	case text == "fine":
		w.provider.Script(providertest.OK())
	case text == "processing":
		w.provider.Script(providertest.Processing())
	case text == "lookup empty":
		w.provider.ScriptLookup(providertest.Empty())
	case text == "lookup lost":
		w.provider.ScriptLookup(providertest.DropReply())
	case len(f) == 2 && f[0] == "declined":
		w.provider.Script(providertest.Decline(f[1]))
	case len(f) == 2 && f[0] == "status":
		n, err := strconv.Atoi(f[1])
		w.provider.Script(providertest.Status(n, "unavailable"))
		return err
	case len(f) == 3 && f[0] == "429":
		w.provider.Script(providertest.RateLimit(duration(f[2])))
	case len(f) == 3 && f[0] == "answers" && f[1] == "late":
		release := make(chan struct{})
		time.AfterFunc(duration(f[2]), func() { close(release) })
		w.provider.Script(providertest.HangAfter(release))
	case len(f) == 2 && f[0] == "slow":
		w.provider.Script(providertest.Slow(duration(f[1])))
	case len(f) == 3 && f[0] == "lands":
		w.provider.Script(providertest.ApplyAfter(duration(f[2])))
	default:
		return errors.New("no such step")
	}
	return nil
}

// procStep is a call in a process, or what befalls it.
func (w *sceneWorld) procStep(name string, f []string) error {
	p := w.proc(name)
	for _, fault := range Faults() {
		if rest, ok := strings.CutPrefix(strings.Join(f, " "), string(fault)+" at "); ok {
			site, always := strings.CutSuffix(rest, " always")
			w.mu.Lock()
			defer w.mu.Unlock()
			p.faults = append(p.faults, &sceneFault{site: site, fault: fault, always: always})
			return nil
		}
	}
	if !p.alive() {
		return fmt.Errorf("process %s is gone", name)
	}
	background := f[len(f)-1] == "&"
	if background {
		f = f[:len(f)-1]
	}
	verb, args := f[0], f[1:]
	var call func() (string, error)
	switch {
	case verb == "dies":
		p.die()
		return nil
	case verb == "recovers":
		w.mu.Lock()
		defer w.mu.Unlock()
		p.faults = nil
		return nil
	case verb == "work":
		p.work()
		return nil
	case (verb == "execute" || verb == "register") && len(args) >= 3:
		return w.execute(p, verb, args, background)
	case verb == "compensate" && len(args) >= 2:
		call = func() (string, error) { return p.compensate(args) }
	case verb == "cancel" && len(args) == 1:
		call = func() (string, error) { //nolint:unparam // as every call
			err := p.charge.Cancel(context.Background(), settle.Intent{Scope: sceneScope, Subject: args[0], Purpose: scenePurpose}, "changed_mind")
			w.caller(nil, err)
			return w.verdict(settle.Record{}, false, err), nil
		}
	case verb == "assign" && len(args) == 3:
		call = func() (string, error) { return p.assign(args[0], args[1], args[2]) }
	case verb == "resolve" && len(args) == 2:
		call = func() (string, error) { return p.resolve(args[0], args[1]) }
	default:
		if call = p.lifeStep(verb, args); call == nil {
			return errors.New("no such step")
		}
	}
	if background {
		w.loose.Go(func() { _ = w.told(p, call) })
		return nil
	}
	return w.told(p, call)
}

// told makes a call and tells what came of it.
func (w *sceneWorld) told(p *sceneProc, call func() (string, error)) error {
	text, err := call()
	if err == nil && p.alive() {
		w.say(p.name, "returns %s", text)
	}
	return err
}

const (
	sceneScope   = "shop"
	scenePurpose = "purchase"
)

// execute is Execute or Register: SUBJECT AMOUNT CURRENCY [patience D] [replaces OP] [token T] [before D].
func (w *sceneWorld) execute(p *sceneProc, verb string, args []string, background bool) error {
	amount, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	op := settle.Operation[providertest.Payment]{
		Scope: sceneScope, Subject: args[0], Purpose: scenePurpose,
		Request: providertest.Payment{Amount: amount, Currency: args[2], Invoice: secretInvoice, Token: secretToken},
	}
	patience := 24 * time.Hour
	for i := 3; i+1 < len(args); i += 2 {
		switch args[i] {
		case "patience":
			if patience, err = time.ParseDuration(args[i+1]); err != nil {
				return err
			}
		case "token":
			op.Request.Token = secretToken + args[i+1]
		case "before":
			d, err := time.ParseDuration(args[i+1])
			if err != nil {
				return err
			}
			op.SendBefore = w.began.Add(d)
		case "replaces":
			if op.Replaces, err = w.id(args[i+1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("what is %q?", args[i])
		}
	}
	do := func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if verb == "register" {
			r, err := p.charge.Register(ctx, op)
			if p.alive() {
				w.caller(nil, err)
				if err == nil {
					w.registered(r.ID)
					w.say(p.name, "returns stored: %s %s", w.label(r.ID), r.State)
					return
				}
				w.say(p.name, "returns %s", w.verdict(r, false, err))
			}
			return
		}
		out, err := p.charge.Execute(ctx, op)
		if p.alive() {
			w.caller(&out.Record, err)
			w.say(p.name, "returns %s", w.verdict(out.Record, out.Replayed, err))
		}
	}
	if background {
		w.loose.Go(do)
		return nil
	}
	do()
	return nil
}

// compensate is Compensate: OP REASON [AMOUNT [REF]]; an amount of - is the whole.
func (p *sceneProc) compensate(args []string) (string, error) {
	id, err := p.w.id(args[0])
	if err != nil {
		return "", err
	}
	var req providertest.Refund
	if len(args) > 2 && args[2] != "-" {
		if req.Amount, err = strconv.ParseInt(args[2], 10, 64); err != nil {
			return "", err
		}
		req.Currency = "EUR"
	}
	effect := settle.Effect{Operation: id}
	if len(args) > 3 {
		effect.Ref = args[3]
	}
	out, err := p.refund.Compensate(context.Background(), effect, args[1], req)
	if p.alive() {
		p.w.caller(&out.Record, err)
	}
	return p.w.verdict(out.Record, out.Replayed, err), nil
}

// assign gives a review an owner and time to decide.
func (p *sceneProc) assign(label, owner, within string) (string, error) {
	id, err := p.w.id(label)
	if err != nil {
		return "", err
	}
	d, err := time.ParseDuration(within)
	if err != nil {
		return "", err
	}
	r, err := p.engine.Assign(context.Background(), id, settle.Assignment{Actor: "ann", Owner: owner, Reason: "knows the provider", Within: d})
	p.w.caller(nil, err)
	if err != nil {
		return p.w.verdict(r, false, err), nil
	}
	return fmt.Sprintf("assigned: %s %s to %s", p.w.label(r.ID), r.State, r.Review.Owner), nil
}

// resolve is a person's decision: a fact, or "resume".
func (p *sceneProc) resolve(label, what string) (string, error) {
	id, err := p.w.id(label)
	if err != nil {
		return "", err
	}
	d := settle.Decision{Actor: "ann", Reason: "asked the provider", Evidence: "ticket 7"}
	for _, o := range p.w.provider.Objects() {
		if o.Reference == id {
			d.Ref = o.ID
		}
	}
	switch {
	case what == "resume":
		d.Resume = true
	case what == "applied" && d.Ref != "":
		d.Fact = settle.Applied
	case what == "applied", d.Ref != "":
		return "", errors.New("that would be a lie")
	default:
		d.Fact = settle.Fact(what)
	}
	r, err := p.engine.Resolve(context.Background(), id, d)
	p.w.caller(nil, err)
	if err != nil {
		return p.w.verdict(r, false, err), nil
	}
	return fmt.Sprintf("recorded: %s %s", p.w.label(r.ID), r.State), nil
}

// work lets the process's worker do what is due now. What takes time it ends later.
func (p *sceneProc) work() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.runs = append(p.runs, done)
	go func() {
		defer close(done)
		if err := p.engine.Run(ctx); err != nil {
			p.w.problem("Run: %v", err)
		}
	}()
	synctest.Wait()
	cancel()
	synctest.Wait()
}

// expect checks an operation: OP STATE [effects=N] [requests=N].
func (w *sceneWorld) expect(f []string) error {
	if len(f) < 2 {
		return errors.New("which operation is in what state?")
	}
	id, err := w.id(f[0])
	if err != nil {
		return err
	}
	r, err := w.reader.Get(context.Background(), id)
	if err != nil {
		return err
	}
	if r.State != settle.State(f[1]) {
		return fmt.Errorf("it is %s", r.State)
	}
	for _, more := range f[2:] {
		name, value, _ := strings.Cut(more, "=")
		var got string
		switch name {
		case "effects":
			got = strconv.Itoa(w.provider.Effects(id))
		case "requests":
			n := 0
			for _, q := range w.provider.Requests() {
				if q.Reference == id {
					n++
				}
			}
			got = strconv.Itoa(n)
		case "parcels":
			n, err := w.countParcels(id)
			if err != nil {
				return err
			}
			got = strconv.Itoa(n)
		default:
			return fmt.Errorf("what is %q?", more)
		}
		if got != value {
			return fmt.Errorf("%s is %s", name, got)
		}
	}
	return nil
}

func (w *sceneWorld) countParcels(id string) (int, error) {
	recs, err := w.raw.List(context.Background(), settle.Query{Kind: "parcel"})
	if err != nil {
		return 0, err
	}
	recs = slices.DeleteFunc(recs, func(r settle.Record) bool { return r.Subject != id })
	return len(recs), nil
}
