package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPin (I9): what is undone of an effect that had no name is named as soon as there is one, so that a second reference of the
// same operation does not make it somebody else's. Between two names nobody can tell, and a wish names its effect when it starts.
func TestPin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refs []string
		want []string
	}{
		"no reference":      {nil, []string{"", "", "", "ch_0"}},
		"one without name":  {[]string{""}, []string{"", "", "", "ch_0"}},
		"one name":          {[]string{"ch_1"}, []string{"ch_1", "", "ch_1", "ch_0"}},
		"it came to a name": {[]string{"", "ch_1"}, []string{"ch_1", "", "ch_1", "ch_0"}},
		"two names":         {[]string{"ch_1", "ch_2"}, []string{"", "", "", "ch_0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Record{Ledger: []Posting{{Status: PostingOpen}, {Status: PostingWished}, {Status: PostingDone}, {Status: PostingOpen, Ref: "ch_0"}}}
			for _, ref := range c.refs {
				r.References = append(r.References, Reference{Ref: ref})
			}
			r.pin()
			var got []string
			for _, p := range r.Ledger {
				got = append(got, p.Ref)
			}
			assert.Equal(t, c.want, got)
		})
	}
}
