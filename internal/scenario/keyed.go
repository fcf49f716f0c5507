package scenario

import (
	"slices"
	"strings"
	"testing"

	"github.com/settle-go/settle"
)

// fingerprintKeys makes keys that are known by name; the first makes fingerprints.
func fingerprintKeys(ids ...string) []settle.FingerprintKey {
	var out []settle.FingerprintKey
	for _, id := range ids {
		out = append(out, settle.FingerprintKey{ID: id, Secret: []byte(strings.Repeat(id+" secret ", 8))})
	}
	return out
}

func keyedBy(ids ...string) *Setup {
	return &Setup{Options: settle.Options{FingerprintKeys: fingerprintKeys(ids...)}}
}

// keyedFingerprints: turning keys on and rotating them makes no replay a mismatch, and no mismatch a replay.
func keyedFingerprints(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		order := func(subject string) Charge {
			op := Order()
			op.Subject = subject
			return op
		}
		made := map[string]string{} // subject: who made it
		for who, p := range map[string]*Process{"": l.Start(nil), "f1": l.Start(keyedBy("f1")), "f2": l.Start(keyedBy("f2", "f1"))} {
			subject := "order-" + who + "x"
			out, err := p.Charge.Execute(l.Ctx, order(subject))
			l.noErr(err)
			made[subject] = who
			rule := settle.HashRuleJSON1
			if who != "" {
				rule += "+hmac:" + who
			}
			if got := l.Get(out.ID).Fingerprint; got.Rule != rule || len(got.Sum) != 64 {
				t.Fatalf("the fingerprint is %+v, want one of %s", got, rule)
			}
		}
		sums := map[string]bool{}
		for _, r := range l.All("charge") {
			sums[r.Fingerprint.Sum] = true
		}
		if len(sums) != 3 {
			t.Fatal("two keys make one fingerprint")
		}
		p := l.Start(keyedBy("f3", "f2", "f1"))
		for subject := range made {
			again, err := p.Charge.Execute(l.Ctx, order(subject))
			l.noErr(err)
			if !again.Replayed {
				t.Fatalf("%s was done again", subject)
			}
			changed := order(subject)
			changed.Request.Amount++
			_, err = p.Charge.Execute(l.Ctx, changed)
			l.wantErr(err, settle.ErrMismatch)
		}
		// A key that is gone: the requests are compared, where they can be.
		p = l.Start(keyedBy("f3"))
		for subject := range made {
			_, err := p.Charge.Execute(l.Ctx, order(subject))
			l.noErr(err)
			changed := order(subject)
			changed.Request.Amount++
			_, err = p.Charge.Execute(l.Ctx, changed)
			l.wantErr(err, settle.ErrMismatch)
		}
		// Without the request nobody can tell, and nothing is taken for a match.
		s := keyedBy("f1")
		s.Options.Sealer = NewKeyset("k1")
		_, err := l.Start(s).Charge.Execute(l.Ctx, order("order-sealed"))
		l.noErr(err)
		same := l.frozen()
		_, err = l.Start(keyedBy("f3")).Charge.Execute(l.Ctx, order("order-sealed"))
		l.wantErr(err, settle.ErrSealed)
		same("a fingerprint that nobody can check")
		_, err = l.Start(keyedBy("f3", "f1")).Charge.Execute(l.Ctx, order("order-sealed"))
		l.noErr(err)
		l.Requests(4)
	})
}

func keyedEvents(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		ev := l.says("", charged("ch_1"))
		first := l.Start(keyedBy("f1"))
		got := l.observes(first, ev, true)
		if r := l.Get(got.Event); r.Fingerprint.Rule != "sha256+hmac:f1" {
			t.Fatalf("the fingerprint is %+v", r.Fingerprint)
		}
		changed := ev
		changed.Payload = slices.Concat(ev.Payload, []byte(" "))
		for _, keys := range [][]string{{"f1"}, {"f2", "f1"}, {"f2"}, nil} {
			p := l.Start(keyedBy(keys...))
			again, err := p.Engine.Observe(l.Ctx, ev)
			l.noErr(err)
			if !again.Duplicate || slices.Contains(p.Alarms(), settle.AlarmEventChanged) {
				t.Fatalf("under %v: %+v, alarms %v", keys, again, p.Alarms())
			}
			_, err = p.Engine.Observe(l.Ctx, changed)
			l.noErr(err)
			if !slices.Contains(p.Alarms(), settle.AlarmEventChanged) {
				t.Fatalf("under %v another content raises no alarm", keys)
			}
		}
	})
}

func keyedApprovals(t *testing.T, open Open) {
	Play(t, open, nil, func(t *testing.T, l *Lab) {
		op := approved(l, l.Start(keyedBy("f1")), Order(), 0)
		same := l.frozen()
		_, err := l.Start(keyedBy("f2")).Charge.Execute(l.Ctx, op)
		l.wantErr(err, settle.ErrRefused)
		plain := approved(l, l.Start(nil), Order(), 0) // could be guessed, and would be stored
		_, err = l.Start(keyedBy("f1")).Charge.Execute(l.Ctx, plain)
		l.wantErr(err, settle.ErrRefused)
		same("an approval that cannot be checked")
		_, err = l.Start(keyedBy("f2", "f1")).Charge.Execute(l.Ctx, op)
		l.noErr(err)
	})
}
