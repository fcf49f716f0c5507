package settle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// buckets is into how many parts the names of a report are divided. With it a difference takes 80 kB whatever
// the report's length, and a difference costs a second look at one part in buckets of the names.
const buckets = 4096

// effectName is an effect's name in short: kind and reference, hashed.
type effectName [16]byte

func nameOf(kind, ref string) effectName {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write([]byte(ref))
	return effectName(h.Sum(nil)[:16])
}

func (n effectName) bucket() int { return int(binary.BigEndian.Uint16(n[:]) % buckets) }

// difference holds a set of effects against another in constant memory: each bucket has the sum of what the report
// listed minus the sum of what the store has. It is zero where both have the same, each once.
type difference struct {
	sum   [buckets][2]uint64
	lines [buckets]uint32 // names that the report listed, for the memory of a second look
}

func (d *difference) add(n effectName, sign uint64) {
	s := &d.sum[n.bucket()]
	s[0] += sign * binary.LittleEndian.Uint64(n[:8])
	s[1] += sign * binary.LittleEndian.Uint64(n[8:])
}

func (d *difference) listed(n effectName)  { d.lines[n.bucket()]++ }
func (d *difference) matched(n effectName) { d.add(n, 1) }
func (d *difference) stored(n effectName)  { d.add(n, ^uint64(0)) }

// groups divides the buckets that differ into groups whose names fit into memory together.
func (d *difference) groups(most int) [][]int {
	var out [][]int
	room := 0
	for b := range d.sum {
		if d.sum[b] == [2]uint64{} {
			continue
		}
		n := int(d.lines[b])
		if len(out) == 0 || n > room {
			out, room = append(out, nil), most
		}
		out[len(out)-1] = append(out[len(out)-1], b)
		room -= n
	}
	return out
}

func (d *difference) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, buckets*20)
	for b := range d.sum {
		out = binary.LittleEndian.AppendUint64(out, d.sum[b][0])
		out = binary.LittleEndian.AppendUint64(out, d.sum[b][1])
		out = binary.LittleEndian.AppendUint32(out, d.lines[b])
	}
	return out, nil
}

func (d *difference) UnmarshalBinary(p []byte) error {
	if len(p) != buckets*20 {
		return errors.New("settle: no difference")
	}
	for b := range d.sum {
		d.sum[b] = [2]uint64{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])}
		d.lines[b] = binary.LittleEndian.Uint32(p[16:])
		p = p[20:]
	}
	return nil
}

// The phases of a pass over a report.
const (
	phaseLines = iota // the report's lines, each held against its operation
	phaseStore        // the store's operations of the window, into the difference
	phaseNames        // for one group of buckets: the report's names, then the store's operations
	phaseDone
)

// position is where a pass is: all that a process needs to go on where another one died.
type position struct {
	Version int           `json:"version"`
	For     string        `json:"for"` // what the pass is about: of another one it is refused
	Phase   int           `json:"phase"`
	Line    int64         `json:"line"`  // lines done in phaseLines, and then how many there were
	After   string        `json:"after"` // the last operation of phaseStore
	Group   int           `json:"group"` // groups of phaseNames that are done
	Digest  []byte        `json:"digest"`
	Summary ReportSummary `json:"summary"`
}

const positionVersion = 1

// identity names a pass: one that began with other options is another.
func (o *ReportOptions) identity() string {
	h := sha256.New()
	parts := append([]string{
		o.Account, stampText(o.From), stampText(o.Until), o.Slack.String(), o.Reach.String(), strconv.FormatBool(o.ReadOnly), strconv.Itoa(o.MaxNames),
	}, o.Kinds...)
	h.Write([]byte(strings.Join(parts, "\x00")))
	return strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil)), 16)
}

func stampText(t time.Time) string { return strconv.FormatInt(stamp(t), 10) }

// restore reads a position that Save was given.
func (o *ReportOptions) restore() (position, *difference, error) {
	p, d := position{Version: positionVersion, For: o.identity()}, new(difference)
	if len(o.Resume) == 0 {
		return p, d, nil
	}
	want := p.For
	if err := json.Unmarshal(o.Resume, &p); err != nil || p.Version != positionVersion {
		return p, d, errors.New("not a position")
	}
	if p.For != want {
		return p, d, errors.New("the position is that of another report or other options")
	}
	if err := d.UnmarshalBinary(p.Digest); err != nil {
		return p, d, errors.New("not a position")
	}
	p.Digest = nil
	return p, d, nil
}

// idAfter is before every id that was made at t or later. Ids are in the order of their time, by the clocks of the
// processes that made them.
func idAfter(t time.Time) string {
	ms := max(0, t.UnixMilli())
	hex := strconv.FormatInt(ms, 16)
	hex = strings.Repeat("0", max(0, 12-len(hex))) + hex
	return hex[:8] + "-" + hex[8:12] + "-"
}

// expected lists the effects of r that a report of the window must have: confirmed, its own, and with its first request
// well inside.
func (o *ReportOptions) expected(r *Record) []Reference {
	if r.Account != o.Account || !slices.Contains(o.Kinds, r.Kind) {
		return nil
	}
	began := r.CreatedAt
	if len(r.Attempts) > 0 {
		began = r.Attempts[0].Start
	}
	if !o.From.IsZero() && began.Before(o.From.Add(o.Slack)) || began.After(o.Until.Add(-o.Slack)) {
		return nil
	}
	var out []Reference
	for _, x := range r.References {
		if x.Rank == RankSucceeded && x.Ref != "" && !x.Foreign {
			out = append(out, x)
		}
	}
	return out
}
