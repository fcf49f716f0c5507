package stripefake

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// page answers a list: newest first, filtered, from the cursor starting_after on. The
// caller holds the lock.
func page[T interface{ when() time.Time }](s *Server, path string, all []T, q url.Values, match func(T) (id string, ok bool)) answer {
	limit := 10
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			return fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Message: "Invalid limit", Param: "limit"})
		}
		limit = n
	}
	limit = min(limit, s.opts.PageSize)
	since := int64(0)
	if v := q.Get("created[gte]"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Message: "Invalid timestamp", Param: "created[gte]"})
		}
		since = n
	}
	after := q.Get("starting_after")
	found, more := []T{}, false
	passed := after == ""
	for _, o := range slices.Backward(all) {
		id, fits := match(o)
		if !passed {
			passed = id == after
			continue
		}
		if !fits || o.when().Unix() < since || o.when().Add(s.opts.ListLag).After(s.opts.Now()) {
			continue
		}
		if len(found) == limit {
			more = true
			break
		}
		found = append(found, o)
	}
	if !passed {
		return fail(http.StatusBadRequest, wireError{Type: "invalid_request_error", Code: "resource_missing", Message: "No such object", Param: "starting_after"})
	}
	return ok(map[string]any{"object": "list", "url": path, "has_more": more, "data": found})
}
