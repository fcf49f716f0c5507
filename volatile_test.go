package settle

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type (
	volCard struct {
		Token string `json:"token" settle:"volatile"`
		Brand string `json:"brand"`
	}
	volBase struct {
		TraceID string `json:"trace_id" settle:"volatile"`
		Memo    string `json:"memo" settle:"volatile"`
	}
	volLine struct {
		SKU  string
		Note string `settle:"volatile"`
	}
	volCharge struct {
		volBase
		Memo    string             `json:"memo"` // shadows a volatile one, and is not
		Amount  decimal.Decimal    `json:"amount"`
		Expires time.Time          `json:"expires_at" settle:"volatile"`
		Card    *volCard           `json:"card"`
		Lines   []volLine          `json:"lines,omitempty"`
		Pair    [2]*volLine        `json:"a/b~c"`
		ByName  map[string]volCard `json:"by_name"`
		Deep    map[int][]volCard  `json:"deep"`
		Hidden  string             `json:"-" settle:"volatile"`
		private string             `settle:"volatile"`
		Dash    string             `json:"-," settle:"volatile"` //nolint:staticcheck // a member called "-" is what is tested
		Whole   volCard            `json:"whole" settle:"volatile"`
		BadName string             `json:"bad\"name" settle:"volatile"` //nolint:staticcheck // a name that encoding/json ignores is what is tested
		Any     any
	}
	volNode struct {
		Name  string
		Next  *volNode
		Nodes map[string][]volNode
	}
	volBadNode struct {
		Memo string `settle:"volatile"`
		Next *volBadNode
	}
	volMutualA struct {
		B []volMutualB
	}
	volMutualB struct {
		A    *volMutualA
		Card volCard
	}
	volSlice    []volSlice
	volPointer  *volPointer
	volSelfTime struct {
		time.Time
		Memo string `settle:"volatile"`
	}
	volEmbedsPtr struct {
		*volCard
		Named volBase `json:"named"`
	}
	volEmbedsAll struct {
		volLine `settle:"volatile"`
		Kept    int
	}
	volAmbiguous struct {
		volX
		volY
	}
	volX struct {
		Memo string `settle:"volatile"`
		X    string `settle:"volatile"`
	}
	volY      struct{ Memo string }
	volLeaf0  struct{ V int }
	volLeaf1  struct{ A, B volLeaf0 }
	volLeaf2  struct{ A, B volLeaf1 }
	volLeaf3  struct{ A, B volLeaf2 }
	volShared struct{ A, B, C volCard }
)

func TestI3_VolatileTags(t *testing.T) {
	_ = volCharge{}.private
	for _, c := range []struct {
		typ  reflect.Type
		want []string
	}{
		{reflect.TypeFor[volCharge](), []string{
			"/-", "/BadName", "/a~1b~0c/*/Note", "/by_name/*/token", "/card/token", "/deep/*/*/token", "/expires_at", "/lines/*/Note", "/trace_id", "/whole",
		}},
		{reflect.TypeFor[*volCard](), []string{"/token"}},
		{reflect.TypeFor[[]volCard](), []string{"/*/token"}},
		{reflect.TypeFor[volNode](), nil},
		{reflect.TypeFor[volSlice](), nil},
		{reflect.TypeFor[volPointer](), nil},
		{reflect.TypeFor[volEmbedsPtr](), []string{"/named/memo", "/named/trace_id", "/token"}},
		{reflect.TypeFor[volEmbedsAll](), []string{"/Note", "/SKU"}},
		{reflect.TypeFor[volAmbiguous](), []string{"/X"}},
		{reflect.TypeFor[volLeaf3](), nil},
		{reflect.TypeFor[volShared](), []string{"/A/token", "/B/token", "/C/token"}},
		{reflect.TypeFor[json.RawMessage](), nil},
		{reflect.TypeFor[time.Time](), nil},
		{reflect.TypeFor[any](), nil},
		{reflect.TypeFor[int](), nil},
		{reflect.TypeFor[chan volCard](), nil},
		{nil, nil},
	} {
		got, err := volatileTags(c.typ)
		require.NoError(t, err, "%v", c.typ)
		assert.Equal(t, c.want, got, "%v", c.typ)
		_, err = newHashRule(got)
		assert.NoError(t, err)
	}
}

func TestI3_VolatileTagsRefused(t *testing.T) {
	for name, typ := range map[string]reflect.Type{
		"recursive":      reflect.TypeFor[volBadNode](),
		"mutual":         reflect.TypeFor[volMutualA](),
		"inside":         reflect.TypeFor[struct{ N []volBadNode }](),
		"encodes itself": reflect.TypeFor[volSelfTime](),
		"unknown word": reflect.TypeFor[struct {
			A int `settle:"volatil"`
		}](),
		"empty word": reflect.TypeFor[struct {
			A int `settle:""`
		}](),
		"two words": reflect.TypeFor[struct {
			A int `settle:"volatile,secret"`
		}](),
		"unknown hidden": reflect.TypeFor[struct {
			A int `json:"-" settle:"x"`
		}](),
		"unknown deep": reflect.TypeFor[struct {
			M map[string]*[]struct {
				A int `settle:"x"`
			}
		}](),
		"star": reflect.TypeFor[struct {
			A int `json:"*" settle:"volatile"`
		}](),
		"star above": reflect.TypeFor[struct {
			A volCard `json:"*"`
		}](),
	} {
		paths, err := volatileTags(typ)
		assert.Error(t, err, name)
		assert.Nil(t, paths, name)
	}
	var wide []reflect.StructField
	for i := range maxVolatilePaths + 1 {
		wide = append(wide, reflect.StructField{Name: "F" + string(rune('A'+i/26)) + string(rune('a'+i%26)), Type: reflect.TypeFor[int](), Tag: `settle:"volatile"`})
	}
	_, err := volatileTags(reflect.StructOf(wide))
	assert.Error(t, err)
	_, err = volatileTags(reflect.StructOf(wide[1:]))
	assert.NoError(t, err)
}

// TestIC02_CredentialIsOutside: a re-minted credential is the same operation.
func TestIC02_CredentialIsOutside(t *testing.T) {
	volatile, err := volatileTags(reflect.TypeFor[volCard]())
	require.NoError(t, err)
	a := fingerprintOf(t, volCard{"tok_A", "visa"}, volatile...)
	assert.Equal(t, a, fingerprintOf(t, volCard{"tok_B", "visa"}, volatile...))
	assert.NotEqual(t, a, fingerprintOf(t, volCard{"tok_A", "amex"}, volatile...))
}

// Every path that the tags give exists in what encoding/json writes, and a
// shadowed volatile field never frees the field that shadows it (I3).
func TestI3_VolatileTagsMatchTheEncoding(t *testing.T) {
	volatile, err := volatileTags(reflect.TypeFor[volCharge]())
	require.NoError(t, err)
	one := volCharge{Memo: "counts", Card: &volCard{Token: "a"}, Lines: []volLine{{Note: "a"}}, ByName: map[string]volCard{"x": {Token: "a"}}}
	one.volBase = volBase{TraceID: "a", Memo: "shadowed"}
	two := volCharge{Memo: "counts", Card: &volCard{Token: "b"}, Lines: []volLine{{Note: "b"}}, ByName: map[string]volCard{"x": {Token: "b"}}}
	two.volBase = volBase{TraceID: "b", Memo: "other"}
	two.Expires, two.Dash, two.BadName, two.Whole = time.Unix(1, 0), "b", "b", volCard{Brand: "b"}
	assert.Equal(t, fingerprintOf(t, one, volatile...), fingerprintOf(t, two, volatile...))
	two.Memo = "differs"
	assert.NotEqual(t, fingerprintOf(t, one, volatile...), fingerprintOf(t, two, volatile...))
}
