package httpsettle

import (
	"net/http"
	"net/url"
	"strings"
)

// location is where the status of an operation is. The default is a relative reference (RFC 9110, section 10.2.2),
// the id below the last segment of the path that was requested: it holds behind a proxy or an
// [http.StripPrefix] that took a part of the path away, and it can never lead to another host.
func (h *Handler[Req, Res]) location(r *http.Request, id string) string {
	if h.opts.Location != nil {
		return h.opts.Location(r, id)
	}
	path := r.URL.EscapedPath()
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		path = u.EscapedPath() // as the client asked; StripPrefix leaves it alone
	}
	last := lastSegment(path)
	if last == "" || last == "." || last == ".." {
		return "./" + id // a path that ends in a slash
	}
	return "./" + last + "/" + id // the dot: a segment may hold a colon (RFC 3986, section 4.2)
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
