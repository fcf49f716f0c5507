package scenario

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
)

// Keyset is a settle.Sealer for tests: AES-GCM with the key's name in front.
type Keyset struct {
	mu   sync.Mutex
	keys []string // the first seals
	fail error    // of everything, as when keys are out of reach
}

// NewKeyset makes one of keys that are known by name.
func NewKeyset(keys ...string) *Keyset { return &Keyset{keys: keys} }

// Set changes the keys.
func (k *Keyset) Set(keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = keys
}

// Fail makes every call fail; nil ends that.
func (k *Keyset) Fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

func (k *Keyset) now() ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.keys), k.fail
}

func aead(name string) (cipher.AEAD, error) {
	secret := sha256.Sum256([]byte("key " + name))
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal implements settle.Sealer.
func (k *Keyset) Seal(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	keys, err := k.now()
	if err != nil {
		return nil, err
	}
	a, err := aead(keys[0])
	if err != nil {
		return nil, err
	}
	return a.Seal(append([]byte(keys[0]), '/'), nil, plaintext, associated), nil
}

var errKeyGone = errors.New("scenario: the key is gone")

// Open implements settle.Sealer.
func (k *Keyset) Open(_ context.Context, sealed, associated []byte) ([]byte, error) {
	keys, err := k.now()
	if err != nil {
		return nil, err
	}
	i := slices.Index(sealed, '/')
	if i < 0 || !slices.Contains(keys, string(sealed[:i])) {
		return nil, errKeyGone
	}
	a, err := aead(string(sealed[:i]))
	if err != nil {
		return nil, err
	}
	return a.Open(nil, nil, sealed[i+1:], associated)
}
