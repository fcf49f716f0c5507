package settle

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what an operation is made of, counted in bytes (not characters) so
// that they are the same in Go and in every database column. They are checked
// before anything is stored; nothing is ever cut to fit.
const (
	MaxScope   = 128     // MaxScope bounds a scope (the tenant).
	MaxKind    = 64      // MaxKind bounds a kind.
	MaxKey     = 255     // MaxKey bounds an operation key.
	MaxSubject = 255     // MaxSubject bounds a subject.
	MaxPurpose = 128     // MaxPurpose bounds a purpose.
	MaxHold    = 255     // MaxHold bounds a hold.
	MaxRef     = 255     // MaxRef bounds a provider's reference.
	MaxRequest = 1 << 20 // MaxRequest bounds a stored request.
	MaxResult  = 1 << 20 // MaxResult bounds a stored result.
)

const ruleNotEmpty = "must not be empty"

// nameError says which field broke which rule. It never holds the field's
// value: a scope or key may be somebody's e-mail address (I16).
type nameError struct {
	Field string
	Rule  string
}

func (e *nameError) Error() string { return e.Field + ": " + e.Rule }

// checkName refuses a name that two systems could read as different things.
// Stores compare names as bytes, but databases trim spaces, collations ignore
// format characters and join marks with letters, and people copy names out of
// logs: what could become equal, or look equal, on the way is refused here,
// alike for all stores.
func checkName(field, s string, limit int) error {
	switch {
	case s == "":
		return &nameError{field, ruleNotEmpty}
	case len(s) > limit:
		return &nameError{field, "must not be longer than " + strconv.Itoa(limit) + " bytes"}
	}
	// Most names are printable ASCII without a space at either end.
	ascii := true
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			ascii = false
			break
		}
	}
	if ascii {
		return nil
	}
	if !utf8.ValidString(s) {
		return &nameError{field, "must be valid utf-8"}
	}
	for _, r := range s {
		switch {
		case isControl(r):
			return &nameError{field, "must not hold control or format characters or line separators"}
		case unicode.Is(unicode.M, r):
			return &nameError{field, "must not hold combining marks"}
		}
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return &nameError{field, "must not begin or end with a space"}
	}
	return nil
}

// checkKind refuses a kind that is not a plain lower-case word. Kinds are
// written by programmers and become metric labels, queue names and parts of
// keys, so they are narrower than the names that data brings.
func checkKind(kind string) error {
	if err := checkName("kind", kind, MaxKind); err != nil {
		return err
	}
	if strings.HasPrefix(kind, "settle.") {
		return &nameError{"kind", "kinds that begin with settle. are settle's own"}
	}
	if kind[0] < 'a' || kind[0] > 'z' {
		return &nameError{"kind", "must begin with a lower-case letter"}
	}
	for i := range len(kind) {
		switch b := kind[i]; {
		case 'a' <= b && b <= 'z', isDigit(b), b == '.', b == '_', b == '-':
		default:
			return &nameError{"kind", "must hold only a-z, 0-9, dot, underscore and hyphen"}
		}
	}
	return nil
}

// checkSize refuses a payload over its limit, see [MaxRequest].
func checkSize(field string, size, limit int) error {
	if size > limit {
		return &nameError{field, "must not be longer than " + strconv.Itoa(limit) + " bytes"}
	}
	return nil
}

// isControl reports runes that must not reach names or messages: controls,
// format characters (zero width, bidi), line and paragraph separators.
func isControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
