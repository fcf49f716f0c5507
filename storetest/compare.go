package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/settle-go/settle"
)

// same checks that two records are the same but for AsOf, which must not have
// gone back.
func same(t tester, what string, got, want settle.Record) {
	t.Helper()
	if got.AsOf.IsZero() || got.AsOf.Before(want.AsOf) {
		t.Errorf("%s: AsOf is %v, want at least %v", what, got.AsOf, want.AsOf)
	}
	got.AsOf = want.AsOf
	if d := diff("Record", got, want); d != "" {
		t.Errorf("%s differs:%s", what, d)
	}
}

func sameEntries(t tester, got, want []settle.Entry) {
	t.Helper()
	if d := diff("History", got, want); d != "" {
		t.Errorf("the history differs:%s", d)
	}
}

// diff lists the fields in which got and want differ, or returns "".
func diff(path string, got, want any) string {
	var b strings.Builder
	compare(&b, path, reflect.ValueOf(got), reflect.ValueOf(want))
	return b.String()
}

// compare walks every field, so that one that is added to Record later is
// compared too.
func compare(b *strings.Builder, path string, got, want reflect.Value) {
	differ := func(g, w any) { fmt.Fprintf(b, "\n\t\t%s: got %v, want %v", path, g, w) }
	switch w := want.Interface().(type) {
	case time.Time:
		g := got.Interface().(time.Time)
		switch {
		case !g.Equal(w):
			differ(g, w)
		case !g.IsZero() && g.Location() != time.UTC:
			differ("location "+g.Location().String(), "UTC")
		}
		return
	case settle.Amount:
		if g := got.Interface().(settle.Amount); !g.Equal(w) {
			differ(g, w)
		}
		return
	case settle.Payload:
		if g := got.Interface().(settle.Payload); !bytes.Equal(g, w) || (g == nil) != (w == nil) {
			differ(bytesOf(g), bytesOf(w))
		}
		return
	}
	switch want.Kind() {
	case reflect.Struct:
		for i := range want.NumField() {
			if f := want.Type().Field(i); f.IsExported() {
				compare(b, path+"."+f.Name, got.Field(i), want.Field(i))
			}
		}
	case reflect.Pointer:
		switch {
		case got.IsNil() != want.IsNil():
			differ(set(got), set(want))
		case !want.IsNil():
			compare(b, path, got.Elem(), want.Elem())
		}
	case reflect.Slice:
		if got.Len() != want.Len() {
			differ(fmt.Sprint(got.Len(), " of them"), want.Len())
			return
		}
		for i := range want.Len() {
			compare(b, fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))
		}
	case reflect.Map:
		if got.Len() != want.Len() {
			differ(fmt.Sprint(got.Len(), " of them"), want.Len())
			return
		}
		for _, k := range want.MapKeys() {
			if g := got.MapIndex(k); g.IsValid() {
				compare(b, fmt.Sprintf("%s[%q]", path, k), g, want.MapIndex(k))
			} else {
				differ("none", k)
			}
		}
	default:
		if !got.Equal(want) {
			differ(fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
		}
	}
}

func bytesOf(p settle.Payload) string {
	switch {
	case p == nil:
		return "nil"
	case len(p) > 40:
		return fmt.Sprintf("%d bytes from % x", len(p), []byte(p[:40]))
	}
	return fmt.Sprintf("% x (%d bytes)", []byte(p), len(p))
}

func set(v reflect.Value) string {
	if v.IsNil() {
		return "nil"
	}
	return "a value"
}

// scribble overwrites all memory that v leads to: what slices, maps and
// pointers share with others must be nothing.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
			v.Elem().SetZero()
		}
	case reflect.Struct:
		if _, ok := v.Interface().(settle.Amount); ok {
			return // decimals are immutable
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
			if x := v.Index(i); x.Kind() == reflect.Uint8 {
				x.SetUint(x.Uint() ^ 0xff)
			} else {
				x.SetZero()
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.Zero(v.Type().Elem()))
		}
	default:
	}
}

// scribbleRecord spoils everything reachable from a record.
func scribbleRecord(r settle.Record) { scribble(reflect.ValueOf(&r).Elem()) }

func scribbleEntry(e settle.Entry) { scribble(reflect.ValueOf(&e).Elem()) }
