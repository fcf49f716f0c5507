package settle

import "context"

// MergeEvent merges an observation as if an event had brought it, for tests of what
// evidence does whatever delivered it.
func MergeEvent(ctx context.Context, e *Engine, id string, o Observation[struct{}]) (Record, error) {
	r, err := e.get(ctx, ByID(id))
	if err != nil {
		return Record{}, err
	}
	out, err := e.merge(ctx, "observe", &r, evidence{
		source: SourceEvent, fact: o.Fact, ref: o.Ref, terms: o.Terms, code: o.Code, action: o.Action, sequence: o.Sequence,
	}, nil, 0)
	return *out, err
}
