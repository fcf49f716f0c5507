package settle

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type (
	secretMarshaler struct{}
	panicMarshaler  struct{}
	runtimePanic    struct{ m map[string]int }
	badText         string
	cyclic          struct{ Next *cyclic }
	embedsHidden    struct {
		hiddenStrings
		Skipped string `json:"-"`
		Genuine string
	}
	hiddenStrings struct{ Shown string }
)

func (secretMarshaler) MarshalJSON() ([]byte, error)    { return nil, errors.New("pan 4242 is bad") }
func (panicMarshaler) MarshalJSON() ([]byte, error)     { panic("pan 4242") }
func (r runtimePanic) MarshalJSON() ([]byte, error)     { r.m["x"] = 1; return nil, nil }
func (b badText) MarshalText() (text []byte, err error) { return []byte(b), nil }

func TestIC09_RawRequestIsKept(t *testing.T) {
	raw := json.RawMessage(" {\"b\" : \"\\u003c\",\n\"a\":1.0}\n")
	for _, v := range []any{raw, &raw} {
		data, err := encodeRequest(v)
		require.NoError(t, err)
		assert.Equal(t, string(raw), string(data))
		data[0] = 'x'
		assert.Equal(t, byte(' '), raw[0], "a copy")
	}
	for _, v := range []any{json.RawMessage(nil), (*json.RawMessage)(nil), nil} {
		data, err := encodeRequest(v)
		require.NoError(t, err)
		assert.Equal(t, "null", string(data))
	}
	_, err := encodeRequest(json.RawMessage{})
	assert.Error(t, err)
	data, err := encodeRequest(map[string]string{"s": "Fish & Chips <XL>"})
	require.NoError(t, err)
	assert.Equal(t, `{"s":"Fish & Chips <XL>"}`, string(data))
}

func TestIC13_EncodeRefuses(t *testing.T) {
	loop := &cyclic{}
	loop.Next = loop
	ring := map[string]any{}
	ring["x"] = ring
	for name, v := range map[string]any{
		"nan": math.NaN(), "infinity": map[string]float64{"x": math.Inf(1)}, "channel": make(chan int), "function": func() {},
		"complex": complex(1, 2), "cycle": loop, "ring": ring, "map key": map[[2]int]int{{1, 2}: 3}, "marshaler": secretMarshaler{},
		"panic": panicMarshaler{}, "runtime panic": []any{runtimePanic{}}, "bad json": ownJSON(`{"a":`), "bad number": json.Number("1x"),
		"bad raw inside": map[string]any{"x": json.RawMessage(`{`)},
		"utf-8":          "\xff", "utf-8 field": struct{ S string }{"a\xffb"}, "utf-8 key": map[string]int{"\xc3": 1}, "utf-8 any": []any{map[string]any{"a": "\xfe"}},
		"utf-8 pointer": &struct{ P *[]string }{&[]string{"\xff"}}, "utf-8 text": badText("\xff"), "utf-8 text key": map[badText]int{"\xff": 1},
		"utf-8 embedded": embedsHidden{hiddenStrings: hiddenStrings{"\xff"}}, "utf-8 named": struct{ B json.Number }{"\xff"},
	} {
		data, err := encodeRequest(v)
		var refused *requestError
		require.ErrorAs(t, err, &refused, name)
		assert.Nil(t, data, name)
		assert.NotContains(t, err.Error(), "4242", name)
	}
	// The encoder survives all of it.
	data, err := encodeRequest([]int{1})
	require.NoError(t, err)
	assert.Equal(t, "[1]", string(data))
}

func TestIC13_GenuineReplacementCharacter(t *testing.T) {
	for _, v := range []any{
		"\ufffd", `\ufffd`, `\\ufffd`, json.Number("1"),
		map[string]any{"\ufffd": []string{"\ufffd"}},
		badText("\ufffd"), []byte("\xff\xef"),
		embedsHidden{Skipped: "\xff", Genuine: "\ufffd"},
		[]any{json.RawMessage(`"\ufffd"`), "x"},
		struct{ P *string }{},
	} {
		data, err := encodeRequest(v)
		require.NoError(t, err, "%#v", v)
		assert.True(t, json.Valid(data) && utf8.Valid(data))
	}
}

func TestI3_EncodeIsEncodingJSON(t *testing.T) {
	v := map[string]any{"a": []any{1.5, "x", nil, true}, "b": struct {
		X int `json:"x,omitempty"`
	}{}}
	want, err := json.Marshal(v)
	require.NoError(t, err)
	got, err := encodeRequest(v)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}
