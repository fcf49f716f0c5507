package sim

import "github.com/settle-go/settle"

// The places of the protocol at which a process talks to the outside, as docs/failures.md
// names them. Commits are told apart by what they record.
const (
	siteSend    = "send"              // the request itself
	siteAsk     = "look up"           // by our own reference
	siteAskRef  = "look up by ref"    // by the provider's
	siteHook    = "hook"              // the application's, inside a commit
	siteClaim   = "claim due"         // a worker asks for what is due
	siteRenew   = "renew"             // a holder keeps its claim
	siteOverdue = "list overdue"      // a worker looks for what nobody claims
	siteReport  = "list for a report" // the operations of a window
	siteOld     = "list for retention"
	sitePlace   = "claim retention"   // who looks for what is old
	siteIntent  = "read the intent"   // is it known?
	siteID      = "read by id"        // the operation itself, its parent or its child
	siteVersion = "read the version"  // is it still as it is remembered?
	siteFirst   = "commit first send" // registration with the first attempt in it
	siteAttempt = "commit attempt"    // each later attempt
)

// siteRead names a read.
func siteRead(by settle.Index) string {
	switch by.Name {
	case settle.IndexIntent:
		return siteIntent
	case settle.IndexID:
		return siteID
	case settle.IndexKey, settle.IndexHold, settle.IndexRef:
	}
	return "read by " + string(by.Name)
}

// siteCommit names a commit by its own write, the one that others follow from.
func siteCommit(ch settle.Change) string {
	w := ch.Writes[0]
	x := w.Entry
	var what string
	switch {
	case w.Record.Kind == settle.RetentionKind:
		return "commit retention"
	case x.Note == "pruned":
		return "commit pruned"
	case w.Record.Kind == settle.EventKind && x.Note == "parked":
		return "commit parked event"
	case w.Record.Kind == settle.EventKind && x.Disposition == settle.DispositionControl:
		return "commit orphan"
	case w.Record.Kind == settle.EventKind:
		return "commit event alone"
	case x.Note == "replaced":
		what = "next try"
	case w.IfVersion == 0 && w.Record.Fingerprint.IsZero():
		what = "tombstone"
	case w.IfVersion == 0 && x.Note == "attempt":
		what = "first send"
	case w.IfVersion == 0 && w.Record.Undoes.Operation != "":
		what = "wish"
	case w.IfVersion == 0:
		what = "registration"
	case x.Source == settle.SourceReply && x.Fact == settle.NotSent && x.Note == "":
		what = "reply" // or that nothing was sent after all
	case x.Source == settle.SourceReply:
		what = "reply"
	case x.Source == settle.SourceEvent:
		what = "event"
	case x.Source == settle.SourceReport:
		what = "report line"
	case x.Source == settle.SourceLookup:
		what = "lookup"
	case x.Source == settle.SourcePerson && x.Code == settle.CodeAssigned:
		what = "assignment"
	case x.Source == settle.SourcePerson && x.Code == settle.CodeRedriven:
		what = "redrive"
	case x.Source == settle.SourcePerson:
		what = "decision"
	case x.Source == settle.SourceCaller && w.Record.Withdrawn == x.Note && x.To == settle.StateCanceled:
		what = "withdrawal"
	case x.Note == "hook_failed":
		what = "consequence"
	default:
		what = x.Note // attempt, claim, wait, review, cancel, consequence, refreshed, redrive
	}
	if w.Record.Undoes.Operation != "" && what != "wish" {
		what = "refund's " + what
	}
	return "commit " + what
}
