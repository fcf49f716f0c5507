package sqlstore

import (
	"database/sql"
	"strconv"
	"strings"

	"github.com/settle-go/settle"
)

// Statements are written with named parameters, {id}, which a query turns into the
// placeholders of its database. {kinds} and {ids} are lists of n of them, {held} is one of n rows
// of a record's id and a token, and {except} is a condition on a list of scopes, or nothing.
type query struct {
	text   string
	params []param
	st     *sql.Stmt // nil: not prepared
}

// lengths are those of the lists of a statement.
type lengths struct{ n, except int }

// mark is a database's way to write placeholders.
type mark struct {
	prefix   string // before a number; "" for plain question marks, which cannot be used twice
	question bool
	cast     string // of an id or a token in a list of rows, whose types nothing else tells
	short    bool   // tokens and write ids are bound as shortID has them
}

// param is a value that a statement can ask for.
type param int

const (
	pID param = iota
	pScope
	pKind
	pKey
	pSubject
	pPurpose
	pRetired
	pHold
	pAccount
	pRef
	pRefs
	pState
	pVersion
	pWas
	pToken
	pIfToken
	pNow
	pCreated
	pDue
	pDueIn
	pKeep
	pBody
	pFixed
	pSame
	pRequest
	pResult
	pWrite
	pEntry
	pShortToken
	pShortIfToken
	pShortWrite
	pLate
	pWait
	pLimit
	pAfter
	pName0
	pName1
	pName2
	pName3
	pRows
	pKinds
	pExcept
	pIDs
	pHeld
	pHeldToken // of the id before it; no statement names it
	pShortHeldToken
)

// created tells the parameters that the update in a batch does not need: what is as it was created is
// in the row, and compared by pSame.
func (p param) created() bool {
	switch p { //nolint:exhaustive // the others
	case pScope, pKind, pKey, pSubject, pPurpose, pRetired, pHold, pAccount, pFixed, pRequest:
		return true
	}
	return false
}

// shortened is p where tokens and write ids are bound in their short form.
func (p param) shortened() param {
	switch p { //nolint:exhaustive // the others are bound as they are
	case pToken:
		return pShortToken
	case pIfToken:
		return pShortIfToken
	case pWrite:
		return pShortWrite
	case pHeldToken:
		return pShortHeldToken
	}
	return p
}

// paramOf knows the names that statements use.
func paramOf(name string) (param, bool) {
	for i, n := range [...]string{
		pID: "id", pScope: "scope", pKind: "kind", pKey: "key", pSubject: "subject", pPurpose: "purpose", pRetired: "retired", pHold: "hold",
		pAccount: "account", pRef: "ref", pRefs: "refs", pState: "state", pVersion: "version", pWas: "was", pToken: "token", pIfToken: "if_token",
		pNow: "now", pCreated: "created", pDue: "due", pDueIn: "due_in", pKeep: "keep", pBody: "body", pFixed: "fixed", pSame: "same", pRequest: "request", pResult: "result",
		pWrite: "write", pEntry: "entry", pLate: "late", pWait: "wait", pLimit: "limit", pAfter: "after",
		pName0: "name0", pName1: "name1", pName2: "name2", pName3: "name3", pRows: "rows", pKinds: "kinds", pExcept: "except",
		pIDs: "ids", pHeld: "held",
	} {
		if n == name {
			return param(i), true
		}
	}
	return 0, false
}

// compile panics over a name that nobody knows: a mistake in a dialect, which the first
// New with it shows.
func compile(text string, m mark, lists lengths) query {
	var out strings.Builder
	q := query{}
	place := func(p param) {
		if m.short {
			p = p.shortened()
		}
		at := -1
		if !m.question && p < pKinds {
			for i, have := range q.params {
				if have == p {
					at = i
				}
			}
		}
		if at < 0 {
			at = len(q.params)
			q.params = append(q.params, p)
		}
		if m.question {
			out.WriteByte('?')
		} else {
			out.WriteString(m.prefix + strconv.Itoa(at+1))
		}
	}
	for {
		before, rest, more := strings.Cut(text, "{")
		out.WriteString(before)
		if !more {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		p, known := paramOf(name)
		if !known || !closed {
			panic("settle/sqlstore: unknown parameter {" + name + "}")
		}
		if p < pKinds {
			place(p)
			text = after
			continue
		}
		n := lists.n
		if p == pExcept {
			if n = lists.except; n > 0 {
				out.WriteString(" AND o.scope NOT IN (")
			}
		}
		for i := range n {
			if i > 0 {
				out.WriteString(", ")
			}
			if p != pHeld {
				place(p)
				continue
			}
			out.WriteString("(")
			place(p)
			out.WriteString(m.cast + ", ")
			place(pHeldToken)
			out.WriteString(m.cast + ")")
		}
		if p == pExcept && n > 0 {
			out.WriteString(")")
		}
		text = after
	}
	q.text = out.String()
	return q
}

// values is what the parameters of one statement stand for. Names and tokens are bound as
// bytes, never nil, which would be NULL.
type values struct {
	record  *settle.Record
	id      string
	was     int64
	now     int64 // of a store without a clock of its own
	late    int64 // and until when the statement may begin
	due     any   // an instant, or nil
	dueIn   any   // a duration, or nil: never
	keep    bool
	ifToken string
	token   string
	body    []byte
	fixed   []byte // where the store splits records: what is as it was created
	same    []byte // and what stands for that and the columns that it goes with
	ref     any    // the first reference that the record owns, or nil
	refs    []byte
	write   string
	entry   []byte
	wait    any
	limit   int
	after   int64
	names   [4]string
	kinds   []string
	except  []string
	held    []settle.Held
	rows    string // of a batch
}

func (v *values) list(params []param) []any {
	out := make([]any, len(params))
	kind, scope, id, token := 0, 0, 0, 0
	for i, p := range params {
		switch p { //nolint:exhaustive // all others are no lists
		case pKinds:
			out[i] = bytesOf(v.kinds[kind])
			kind++
		case pExcept:
			out[i] = bytesOf(v.except[scope])
			scope++
		case pIDs, pHeld:
			out[i] = bytesOf(v.held[id].ID)
			id++
		case pHeldToken:
			out[i] = bytesOf(v.held[token].Token)
			token++
		case pShortHeldToken:
			out[i] = shortID(v.held[token].Token)
			token++
		default:
			out[i] = v.of(p)
		}
	}
	return out
}

//nolint:cyclop,gocyclo // a table
func (v *values) of(p param) any {
	r := v.record
	switch p {
	case pID:
		return bytesOf(v.id)
	case pScope:
		return bytesOf(r.Scope)
	case pKind:
		return bytesOf(r.Kind)
	case pKey:
		return bytesOf(r.Key)
	case pSubject:
		return bytesOf(r.Subject)
	case pPurpose:
		return bytesOf(r.Purpose)
	case pRetired:
		return retired(r)
	case pHold:
		return hold(r)
	case pAccount:
		return bytesOf(r.Account)
	case pRef:
		return v.ref
	case pRefs:
		return v.refs
	case pState:
		return string(r.State)
	case pVersion:
		return v.was + 1
	case pWas:
		return v.was
	case pToken:
		return bytesOf(v.token)
	case pIfToken:
		return bytesOf(v.ifToken)
	case pNow:
		return v.now
	case pCreated:
		return r.CreatedAt.UnixMicro()
	case pDue:
		return v.due
	case pDueIn:
		return v.dueIn
	case pKeep:
		return v.keep
	case pBody:
		return v.body
	case pFixed:
		return v.fixed
	case pSame:
		return v.same
	case pRequest:
		return payload(r.Request)
	case pResult:
		return payload(r.Result)
	case pWrite:
		return bytesOf(v.write)
	case pEntry:
		return v.entry
	case pShortToken:
		return shortID(v.token)
	case pShortIfToken:
		return shortID(v.ifToken)
	case pShortWrite:
		return shortID(v.write)
	case pLate:
		return v.late
	case pWait:
		return v.wait
	case pLimit:
		return v.limit
	case pAfter:
		return v.after
	case pName0, pName1, pName2, pName3:
		return bytesOf(v.names[p-pName0])
	case pRows:
		return v.rows
	case pKinds, pExcept, pIDs, pHeld, pHeldToken, pShortHeldToken:
	}
	panic("settle/sqlstore: a list is no value")
}
