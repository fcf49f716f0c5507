package sqlstore

import (
	"reflect"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle"
)

// full sets every member of v that is zero, pointers and the first items of lists and maps too.
func full(v reflect.Value) {
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = instant(1_700_000_000_123_456)
		return
	case *decimal.Decimal:
		*at = decimal.New(1990, -2)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.String:
		v.SetString("x y")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(7)
	default:
		v.SetInt(3)
	}
}

// TestParts: every member of a record is in a part of it or in a column, and comes back; and one that an update does not
// write is one that its guard compares.
func TestParts(t *testing.T) {
	t.Parallel()
	s := &Store{d: PostgreSQL()}
	write := func(r settle.Record) *values {
		v, err := s.writing("w", &settle.Write{Record: r, IfVersion: 1})
		require.NoError(t, err)
		return v
	}
	var all settle.Record
	full(reflect.ValueOf(&all).Elem())
	got, err := write(all).stored(&s.d)
	require.NoError(t, err)
	want := all
	want.Version, want.Token, want.Due, want.AsOf, want.CreatedAt, want.UpdatedAt = 0, "", time.Time{}, time.Time{}, time.Time{}, time.Time{} // columns by themselves
	assert.Equal(t, want, got)
	text, err := settle.EncodeRecord(want)
	require.NoError(t, err)
	again, err := s.d.decode(text, nil, all.Request, all.Result)
	require.NoError(t, err)
	assert.Equal(t, want, again, "as version 1 of the schema kept it")

	updated := func(v *values) []any {
		return []any{v.body, v.refs, v.same, string(v.record.State), v.record.Result, v.token, v.record.CreatedAt.UnixMicro()}
	}
	for i := range reflect.TypeFor[settle.Record]().NumField() {
		name := reflect.TypeFor[settle.Record]().Field(i).Name
		switch name {
		case "Version", "Due", "UpdatedAt", "AsOf": // the store's own
			continue
		}
		other := all
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		assert.NotEqual(t, updated(write(all)), updated(write(other)), name)
	}
	empty := all
	empty.Request = settle.Payload{}
	none := all
	none.Request = nil
	assert.NotEqual(t, write(empty).same, write(none).same, "after retention")
}
