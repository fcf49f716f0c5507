package settle

import (
	"strconv"
	"time"
)

func (p *parser) record(r *Record) {
	version := int64(0)
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "v":
			if version = p.number(); version != codecVersion {
				p.fail("unknown version " + strconv.FormatInt(version, 10))
			}
		case "id":
			r.ID = p.text()
		case "scope":
			r.Scope = p.text()
		case "kind":
			r.Kind = p.text()
		case "key":
			r.Key = p.text()
		case "subject":
			r.Subject = p.text()
		case "purpose":
			r.Purpose = p.text()
		case "gen":
			r.Generation = p.integer()
		case "replaces":
			r.Replaces = p.text()
		case "hold":
			r.Hold = p.text()
		case "undoes":
			p.undo(&r.Undoes)
		case "provider_key":
			r.ProviderKey = p.text()
		case "account":
			r.Account = p.text()
		case "fingerprint":
			p.fingerprint(&r.Fingerprint)
		case "terms":
			p.terms(&r.Terms)
		case "window":
			r.KeyWindow = time.Duration(p.number())
		case "before":
			r.SendBefore = p.time()
		case "approval":
			r.Approval = new(Approval)
			p.approval(r.Approval)
		case "created":
			r.CreatedAt = p.time()
		case "attempts":
			p.attempts(r)
		case "refs":
			p.references(r)
		case "progress":
			r.Progress = new(Progress)
			p.progress(r.Progress)
		case "ledger":
			p.ledger(r)
		case "code":
			r.Code = p.text()
		case "message":
			r.Message = p.text()
		case "withdrawn":
			r.Withdrawn = p.text()
		case "replaced_by":
			r.ReplacedBy = p.text()
		case "hold_free":
			r.HoldFree = p.flag()
		case "review":
			r.Review = new(Review)
			p.review(r.Review)
		case "resumed":
			r.ResumedAt = p.time()
		case "tries":
			r.Tries = p.integer()
		case "retry":
			r.RetryAt = p.time()
		case "wake":
			r.Wake = p.flag()
		case "consequence":
			r.Consequence = Consequence(p.text())
		case "waits":
			r.Waits = p.integer()
		case "hook_tries":
			r.HookTries = p.integer()
		case "feed":
			p.feed(&r.Feed)
		case "state":
			r.State = State(p.text())
		case "updated":
			r.UpdatedAt = p.time()
		case "pruned":
			r.PrunedAt = p.time()
		default:
			p.skip()
		}
	}
	p.end()
	if version == 0 {
		p.fail("no version")
	}
}

// end fails unless everything was read.
func (p *parser) end() {
	if p.err == nil && (p.peek() != 0 || p.i < len(p.s)) {
		p.fail("more than one value")
	}
}

func (p *parser) undo(u *Undo) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "op":
			u.Operation = p.text()
		case "ref":
			u.Ref = p.text()
		case "whole":
			u.Whole = p.flag()
		default:
			p.skip()
		}
	}
}

func (p *parser) fingerprint(f *Fingerprint) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "rule":
			f.Rule = p.text()
		case "volatile":
			p.begin('[')
			for p.more(']') {
				f.Volatile = append(f.Volatile, p.text())
			}
		case "sum":
			f.Sum = p.text()
		default:
			p.skip()
		}
	}
}

func (p *parser) terms(t *Terms) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "account":
			t.Account = p.text()
		case "amount":
			t.Amount.Value = p.decimal()
		case "unit":
			t.Amount.Unit = p.text()
		case "other":
			p.begin('{')
			for p.more('}') {
				if t.Other == nil {
					t.Other = make(map[string]string)
				}
				k := p.key()
				t.Other[k] = p.text()
			}
		default:
			p.skip()
		}
	}
}

func (p *parser) approval(a *Approval) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "by":
			a.By = p.text()
		case "at":
			a.At = p.time()
		case "until":
			a.Until = p.time()
		case "fingerprint":
			a.Fingerprint = p.text()
		case "note":
			a.Note = p.text()
		default:
			p.skip()
		}
	}
}

func (p *parser) attempts(r *Record) {
	p.begin('[')
	for p.more(']') {
		var a Attempt
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "n":
				a.N = p.integer()
			case "start":
				a.Start = p.time()
			case "end":
				a.End = p.time()
			case "fate":
				a.Fate = Fate(p.text())
			case "grace":
				a.Grace = time.Duration(p.number())
			case "code":
				a.Code = p.text()
			case "closed":
				a.Closed = p.flag()
			default:
				p.skip()
			}
		}
		r.Attempts = append(r.Attempts, a)
	}
}

func (p *parser) references(r *Record) {
	p.begin('[')
	for p.more(']') {
		var e Reference
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "ref":
				e.Ref = p.text()
			case "rank":
				e.Rank = Rank(p.text())
			case "terms":
				p.terms(&e.Terms)
			case "terms_as":
				e.TermsAs = Rank(p.text())
			case "mismatch":
				e.Mismatch = p.flag()
			case "accepted":
				e.Accepted = p.flag()
			case "foreign":
				e.Foreign = p.flag()
			case "owner":
				e.Owner = p.text()
			default:
				p.skip()
			}
		}
		r.References = append(r.References, e)
	}
}

func (p *parser) progress(g *Progress) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "state":
			g.State = State(p.text())
		case "action":
			g.Action = p.text()
		case "seq":
			g.Sequence = p.number()
		case "lookup":
			g.FromLookup = p.flag()
		case "since":
			g.Since = p.time()
		default:
			p.skip()
		}
	}
}

func (p *parser) ledger(r *Record) {
	p.begin('[')
	for p.more(']') {
		var l Posting
		p.begin('{')
		for p.more('}') {
			switch p.key() {
			case "op":
				l.Operation = p.text()
			case "kind":
				l.Kind = p.text()
			case "ref":
				l.Ref = p.text()
			case "amount":
				l.Amount.Value = p.decimal()
			case "unit":
				l.Amount.Unit = p.text()
			case "status":
				l.Status = PostingStatus(p.text())
			case "reason":
				l.Reason = p.text()
			case "whole":
				l.Whole = p.flag()
			case "external":
				l.External = p.text()
			default:
				p.skip()
			}
		}
		r.Ledger = append(r.Ledger, l)
	}
}

func (p *parser) review(v *Review) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "reason":
			v.Reason = p.text()
		case "owner":
			v.Owner = p.text()
		case "since":
			v.Since = p.time()
		case "deadline":
			v.Deadline = p.time()
		case "overdue":
			v.Overdue = p.flag()
		default:
			p.skip()
		}
	}
}

func (p *parser) feed(f *Feed) {
	p.begin('{')
	for p.more('}') {
		switch p.key() {
		case "done":
			f.Done = p.number()
		case "last":
			f.Last = p.number()
		case "state":
			f.State = State(p.text())
		case "from":
			f.From = p.number()
		case "row":
			f.Row = p.number()
		default:
			p.skip()
		}
	}
}
