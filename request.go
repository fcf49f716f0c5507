package settle

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"unicode/utf8"
)

// requestEncoder is a JSON encoder with the buffer that it writes to.
type requestEncoder struct {
	buf bytes.Buffer
	enc *json.Encoder
}

var requestEncoders = sync.Pool{New: func() any {
	e := new(requestEncoder)
	e.enc = json.NewEncoder(&e.buf)
	// Without HTML escapes: what is stored goes to the provider, and its
	// length and signature should not depend on an HTML page there never was.
	e.enc.SetEscapeHTML(false)
	return e
}}

// encodeRequest returns the bytes of v that are stored, hashed, and decoded
// again for the adapter at every attempt (I2). They are encoding/json's,
// without HTML escaping. A json.RawMessage on top is kept byte for byte, white
// space included: somebody may have signed it (IC-09). It is not looked at
// here; its fingerprint refuses what is not JSON.
//
// What JSON cannot hold is a *requestError, never a panic: NaN, channels,
// functions, cycles, and a marshaller that fails or panics. The marshaller's
// own error is dropped, since it may quote the request (I16). Strings with
// invalid UTF-8 are refused, as encoding/json would replace the bad bytes and
// make two different requests one (I3, IC-13).
func encodeRequest(v any) (data []byte, err error) {
	switch raw := v.(type) {
	case json.RawMessage:
		return encodeRaw(raw)
	case *json.RawMessage:
		if raw != nil {
			return encodeRaw(*raw)
		}
	}
	e := requestEncoders.Get().(*requestEncoder)
	defer func() {
		if r := recover(); r != nil {
			// The encoder is in an unknown state and is not used again. The
			// panic's value may hold data, so it goes no further.
			data, err = nil, &requestError{Reason: "encoding it panicked"}
		}
	}()
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		requestEncoders.Put(e)
		return nil, &requestError{Reason: encodeReason(err)}
	}
	text := bytes.TrimSuffix(e.buf.Bytes(), []byte("\n"))
	if mayBeReplaced(text) && !validStrings(reflect.ValueOf(v), 0) {
		requestEncoders.Put(e)
		return nil, &requestError{Reason: "a string with invalid utf-8"}
	}
	data = bytes.Clone(text)
	if e.buf.Cap() <= maxPooledBuffer {
		requestEncoders.Put(e)
	}
	return data, nil
}

func encodeRaw(raw json.RawMessage) ([]byte, error) {
	switch {
	case raw == nil:
		return []byte("null"), nil // as encoding/json has it
	case len(raw) == 0:
		return nil, &requestError{Reason: "empty"}
	}
	return bytes.Clone(raw), nil
}

// encodeReason names types, which are code, and never values.
func encodeReason(err error) string {
	var unsupportedType *json.UnsupportedTypeError
	if errors.As(err, &unsupportedType) {
		return "json cannot hold a " + unsupportedType.Type.String()
	}
	var unsupportedValue *json.UnsupportedValueError
	if errors.As(err, &unsupportedValue) {
		return "json cannot hold one of its values (not a number, infinite, or a cycle)"
	}
	var marshaler *json.MarshalerError
	if errors.As(err, &marshaler) {
		return "the encoder of " + marshaler.Type.String() + " failed"
	}
	return "json cannot hold it"
}

// mayBeReplaced reports whether text has a replacement character, written
// either way. It is rare, so the walk that tells a replaced byte from a genuine
// U+FFFD costs ordinary requests nothing.
func mayBeReplaced(text []byte) bool {
	return bytes.Contains(text, []byte(`\ufffd`)) || bytes.Contains(text, []byte("\ufffd"))
}

var (
	jsonMarshalerType = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
)

// validStrings reports whether the strings that encoding/json took from v are
// valid UTF-8. Types that write their own JSON are not looked into: their JSON
// is what counts.
func validStrings(v reflect.Value, depth int) bool {
	if depth > 10*maxCanonDepth { // pointers add depth here but none in JSON
		return false
	}
	if !v.IsValid() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || validStrings(v.Elem(), depth+1)
	}
	switch t := v.Type(); {
	case encodesItself(t, jsonMarshalerType, v.CanAddr()):
		return true
	case encodesItself(t, textMarshalerType, v.CanAddr()):
		m, ok := v.Interface().(encoding.TextMarshaler)
		if !ok {
			m, ok = v.Addr().Interface().(encoding.TextMarshaler)
		}
		if !ok {
			return true
		}
		text, err := m.MarshalText()
		return err == nil && utf8.Valid(text)
	}
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			embedded := f.Anonymous && isStruct(f.Type)
			if !f.IsExported() && !embedded || f.Tag.Get("json") == "-" {
				continue
			}
			if !validStrings(v.Field(i), depth+1) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !validStrings(it.Key(), depth+1) || !validStrings(it.Value(), depth+1) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return true
		}
		for i := range v.Len() {
			if !validStrings(v.Index(i), depth+1) {
				return false
			}
		}
	}
	return true
}

// encodesItself reports whether encoding/json would call the type's own method
// of the interface; one on the pointer only counts for addressable values.
func encodesItself(t, method reflect.Type, addressable bool) bool {
	return t.Implements(method) || addressable && reflect.PointerTo(t).Implements(method)
}

// isStruct reports a struct or a pointer to one.
func isStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}
