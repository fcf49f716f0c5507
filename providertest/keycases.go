package providertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/settle-go/settle"
)

func contractCases() []testCase {
	return []testCase{
		{
			rule: "contract", name: "accepted", run: contractAccepted,
			proves: "settle.New takes adapter and contract",
		},
		{
			rule: "contract", name: "dated", run: contractDated,
			proves: "Source says where the facts come from",
		},
		{
			rule: "account", name: "on_the_wire", run: accountOnTheWire,
			proves: "what goes out names the contract's account",
			needs: func(e *env) string {
				if e.account.none() {
					return "no Harness.Account: a credential alone shows no account"
				}
				return ""
			},
		},
	}
}

func keyCases() []testCase {
	return []testCase{
		{
			rule: "key", name: "byte_for_byte", run: keyByteForByte,
			proves: "keys of full length, with every character of the alphabet, and keys that differ in one byte or in the case of a letter arrive as they are; " +
				"where no key is honoured none is made up",
		},
		{
			rule: "key", name: "same_on_every_attempt", run: keySameOnEveryAttempt, needs: needsKeys,
			proves: "three attempts after lost replies send one request three times",
		},
		{
			rule: "key", name: "honored", run: keyHonored, needs: needsKeys,
			proves: "a repeat under the same key has no second effect and is reported with the first one's reference: the promise of the contract is the provider's",
		},
		{
			rule: "reference", name: "in_place", run: referenceInPlace,
			proves: "each request carries its own operation's id",
			needs: func(e *env) string {
				if e.reference.none() {
					return "no Harness.Reference"
				}
				return ""
			},
		},
	}
}

func contractAccepted(t tester, e *env) {
	if err := e.open().accepted(); err != nil {
		t.Errorf("settle.New refuses the adapter: %v", err)
	}
	if e.promise.Keys.Window > 0 && e.key.none() {
		t.Errorf("the contract honours keys and Harness.Key does not say where they are")
	}
}

func contractDated(t tester, e *env) {
	if strings.TrimSpace(e.promise.Source) == "" {
		t.Errorf("Contract.Source is empty")
	}
}

func accountOnTheWire(t tester, e *env) {
	w := e.open()
	c := e.next()
	r := e.executed(t, w, c)
	for _, s := range r.creates {
		if got := e.account.readings(s); !slices.Equal(got, []string{e.promise.Account.Account}) {
			t.Errorf("%s %s has %q at %v, the contract says %q", s.Method, s.URL.Path, got, e.account, e.promise.Account.Account)
		}
	}
	if got := w.terms(c).Account; got != "" && got != e.promise.Account.Account {
		t.Errorf("Adapter.Terms states the account %q, the contract says %q", got, e.promise.Account.Account)
	}
}

// keys are hard ones that the contract allows.
func (e *env) keys() []string {
	k := e.promise.Keys
	if k.Window == 0 {
		return []string{""}
	}
	if k.Alphabet == settle.AlphabetUUID {
		return []string{uuid.NewSHA1(uuid.NameSpaceURL, []byte("a")).String(), uuid.NewSHA1(uuid.NameSpaceURL, []byte("b")).String()}
	}
	alphabet := k.Alphabet
	if alphabet == "" {
		for b := byte('!'); b <= '~'; b++ {
			alphabet += string(rune(b))
		}
	}
	length := min(k.MaxLen, settle.MaxProviderKey)
	if length == 0 {
		length = settle.MaxProviderKey
	}
	var out []string
	for first := 0; first < len(alphabet); first += length { // each character is in one of them
		out = append(out, strings.Repeat(alphabet[first:]+alphabet[:first], length/len(alphabet)+1)[:length])
	}
	full := []byte(out[0])
	for _, b := range alphabet {
		if byte(b) != full[length-1] {
			full[length-1] = byte(b) // differs in its last byte
			out = append(out, string(full))
			break
		}
	}
	for i := range len(alphabet) {
		b := alphabet[i] ^ 0x20 // differs in the case of one letter
		if alphabet[i] >= 'A' && alphabet[i] <= 'Z' && strings.IndexByte(alphabet, b) >= 0 {
			j := strings.IndexByte(out[0], alphabet[i])
			if j >= 0 {
				out = append(out, out[0][:j]+string(rune(b))+out[0][j+1:])
				break
			}
		}
	}
	return out
}

// keyOf is a usual key of the nth operation.
func (e *env) keyOf(n int) string {
	k := e.promise.Keys
	if k.Window == 0 {
		return ""
	}
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte{byte(n >> 8), byte(n)}).String()
	if k.Alphabet == settle.AlphabetUUID {
		return id
	}
	length := min(k.MaxLen, settle.MaxProviderKey)
	if length == 0 {
		length = settle.MaxProviderKey
	}
	var b strings.Builder
	for i := 0; i < len(id) && b.Len() < length; i++ {
		if k.Alphabet == "" || strings.IndexByte(k.Alphabet, id[i]) >= 0 {
			b.WriteByte(id[i])
		}
	}
	return b.String()
}

func keyByteForByte(t tester, e *env) {
	w := e.open()
	for _, key := range e.keys() {
		c := e.next()
		c.key = key
		e.wantKey(t, c, e.submit(t, w, c))
	}
}

// wantKey holds every request of r against the key of c.
func (e *env) wantKey(t tester, c call, r result) {
	t.Helper()
	if len(r.creates) == 0 {
		t.Fatalf("Submit sent no request that creates: does Harness.Creates know it?")
	}
	for _, s := range r.creates {
		got := e.key.readings(s)
		switch {
		case c.key == "" && len(got) > 0:
			t.Errorf("no key was given, and %s %s has %q at %v: nothing but settle makes keys", s.Method, s.URL.Path, got, e.key)
		case c.key != "" && !slices.Equal(got, []string{c.key}):
			t.Errorf("%s %s has %q at %v\n\twant exactly %q%s", s.Method, s.URL.Path, got, e.key, c.key, difference(got, c.key))
		}
	}
}

// difference says where a key that is there differs from the one that should be.
func difference(got []string, want string) string {
	if len(got) != 1 {
		return fmt.Sprintf("\n\t(%d values are there)", len(got))
	}
	i := 0
	for i < min(len(got[0]), len(want)) && got[0][i] == want[i] {
		i++
	}
	return fmt.Sprintf("\n\t(%d bytes instead of %d; they differ from byte %d on)", len(got[0]), len(want), i)
}

func keySameOnEveryAttempt(t tester, e *env) {
	w := e.open()
	c := e.next()
	var first *Sent
	for c.attempt = 1; c.attempt <= 3; c.attempt++ {
		w.onCreate(func(x *exchange) { x.perform(); x.cut() })
		if c.attempt == 3 {
			w.on(nil)
		}
		r := e.submit(t, w, c)
		e.wantKey(t, c, r)
		for _, s := range r.creates {
			if first == nil {
				first = &s
			} else if !first.same(s) {
				t.Errorf("attempt %d sends another request than attempt 1:\n\t%s %s %s\n\t%s %s %s",
					c.attempt, first.Method, first.URL, first.Body, s.Method, s.URL, s.Body)
			}
		}
	}
	if n := w.local.Effects(c.id); n != 1 {
		t.Errorf("three attempts under one key had %d effects, want 1", n)
	}
}

func keyHonored(t tester, e *env) {
	w := e.open()
	c := e.next()
	first := e.executed(t, w, c)
	c.attempt = 2
	again := e.submit(t, w, c)
	if n := w.local.Effects(c.id); n != 1 {
		t.Fatalf("the contract promises that keys are honoured (Window %v), but a repeat under the same key has had %d effects; want 1", e.promise.Keys.Window, n)
	}
	switch {
	case again.noAnswer():
	case !again.seen():
		t.Errorf("the repeat ended with %s, after the effect was reported", again)
	case again.obs.Ref != first.obs.Ref:
		t.Errorf("the repeat names the effect %q, the first answer %q", again.obs.Ref, first.obs.Ref)
	}
}

func referenceInPlace(t tester, e *env) {
	w := e.open()
	for range 2 {
		c := e.next()
		r := e.submit(t, w, c)
		for _, s := range r.creates {
			if got := e.reference.readings(s); !slices.Equal(got, []string{c.id}) {
				t.Errorf("%s %s has %q at %v, want %q", s.Method, s.URL.Path, got, e.reference, c.id)
			}
		}
	}
}
