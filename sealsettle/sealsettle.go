// Package sealsettle encrypts what settle stores, with Tink (github.com/tink-crypto/tink-go). It is a module of its
// own, so that Tink never becomes a requirement of the root module.
//
//	handle, err := keyset.Read(keyset.NewJSONReader(file), kek) // kek: a tink.AEAD of your key management service
//	sealer, err := sealsettle.New(handle)
//	engine, err := settle.Open(store, &settle.Options{Sealer: sealer, FingerprintKeys: …})
//
// The keyset's primary key seals, every enabled key opens, and a ciphertext begins with the id of its key. The
// service unwraps the keyset once, when the process starts: nothing here calls it for a row. A new keyset:
//
//	tinkey create-keyset --key-template AES256_GCM --master-key-uri … --out keyset.json
//
// To rotate, add a key, roll it out to every process, make it the primary, roll that out, and keep the old
// one: rows are sealed again only when something writes them (docs/encryption.md).
package sealsettle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/core/cryptofmt"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/settle-go/settle"
)

// ErrKeyGone says that the key that sealed something is not in the keyset, or disabled.
var ErrKeyGone = errors.New("settle/sealsettle: the key is not in the keyset")

// ErrDamaged says that the key is there, and what it should open was changed or moved to another place.
var ErrDamaged = errors.New("settle/sealsettle: changed, or of another place")

// Sealer is a settle.Sealer over a keyset. It is safe for concurrent use. The zero value has no keys.
type Sealer struct {
	keys atomic.Pointer[keys]
}

type keys struct {
	aead     tink.AEAD
	prefixes [][]byte // of the enabled keys
}

var _ settle.Sealer = (*Sealer)(nil)

// New makes a Sealer of a keyset for AEAD. It refuses one with an enabled key whose output has no prefix (RAW and the like): its ciphertexts
// would not tell by which key they were made.
func New(handle *keyset.Handle) (*Sealer, error) {
	s := &Sealer{}
	return s, s.Use(handle)
}

// Use replaces the keyset, while others seal and open: what begins after it uses the new one. After an error the old one stays.
func (s *Sealer) Use(handle *keyset.Handle) error {
	if handle == nil {
		return errors.New("settle/sealsettle: no keyset")
	}
	k := &keys{}
	for _, info := range handle.KeysetInfo().GetKeyInfo() {
		if info.GetStatus() != tinkpb.KeyStatusType_ENABLED {
			continue
		}
		if info.GetOutputPrefixType() != tinkpb.OutputPrefixType_TINK {
			return fmt.Errorf("settle/sealsettle: key %d: its output has no prefix of Tink", info.GetKeyId())
		}
		prefix, err := cryptofmt.OutputPrefix(&tinkpb.Keyset_Key{KeyId: info.GetKeyId(), OutputPrefixType: info.GetOutputPrefixType()})
		if err != nil {
			return fmt.Errorf("settle/sealsettle: key %d: %w", info.GetKeyId(), err)
		}
		k.prefixes = append(k.prefixes, []byte(prefix))
	}
	var err error
	if k.aead, err = aead.New(handle); err != nil {
		return fmt.Errorf("settle/sealsettle: %w", err)
	}
	s.keys.Store(k)
	return nil
}

// Seal implements settle.Sealer.
func (s *Sealer) Seal(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	k := s.keys.Load()
	if k == nil {
		return nil, ErrKeyGone
	}
	return k.aead.Encrypt(plaintext, associated)
}

// Open implements settle.Sealer: ErrKeyGone or ErrDamaged.
func (s *Sealer) Open(_ context.Context, sealed, associated []byte) ([]byte, error) {
	k := s.keys.Load()
	if k == nil {
		return nil, ErrKeyGone
	}
	plain, err := k.aead.Decrypt(sealed, associated)
	if err == nil {
		return plain, nil
	}
	for _, p := range k.prefixes {
		if bytes.HasPrefix(sealed, p) {
			return nil, ErrDamaged
		}
	}
	return nil, ErrKeyGone
}
