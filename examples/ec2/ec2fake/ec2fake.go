// Package ec2fake is a local server that speaks the part of Amazon EC2's query API (forms in, XML out) that the ec2 example
// uses: RunInstances of one instance with its ClientToken, and DescribeInstances by id or client token, in pages. It counts
// the instances that it made, and misbehaves when a test says so.
//
// What it does about tokens is what Amazon documents ("Ensuring idempotency in Amazon EC2 API requests"): a repeat with the same
// parameters succeeds and makes nothing; its answer may show the present state. With other parameters it is
// IdempotentParameterMismatch. It is not EC2: what the documentation leaves open is decided here in the way that is hardest for a client.
package ec2fake

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
)

// Options configure a Server. The zero value works.
type Options struct {
	Owner    string // the account; defaults to 123456789012
	PageSize int    // of DescribeInstances, cut before it is filtered; defaults to 50
}

// Instance is one that was made.
type Instance struct {
	ID, Token, Image, Type, Zone, State, Reason string
	Tags                                        url.Values
}

// Fault is what goes wrong with one RunInstances. The zero value is a request that goes well.
type Fault struct {
	Lose   bool   // the instance is made, and the connection ends without a reply
	Status int    // answered in front of everything else, with Code
	Code   string // an error code of EC2
}

// Server is the API, an http.Handler. It is safe for concurrent use.
type Server struct {
	opts Options

	mu        sync.Mutex
	instances []*Instance
	params    map[string]string // by token
	faults    []Fault
	runs      []url.Values
}

// New returns a server without instances.
func New(o *Options) *Server {
	s := &Server{params: map[string]string{}}
	if o != nil {
		s.opts = *o
	}
	s.opts.Owner = cmp.Or(s.opts.Owner, "123456789012")
	s.opts.PageSize = cmp.Or(s.opts.PageSize, 50)
	return s
}

// Script sets what the next RunInstances do, one fault each.
func (s *Server) Script(f ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f...)
}

// Runs returns the forms of every RunInstances that arrived, in order.
func (s *Server) Runs() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// Instances returns what was made, in order.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Instance, 0, len(s.instances))
	for _, i := range s.instances {
		out = append(out, *i)
	}
	return out
}

// Tagged counts the instances with a tag of the value.
func (s *Server) Tagged(key, value string) int {
	n := 0
	for _, i := range s.Instances() {
		if i.Tags.Get(key) == value {
			n++
		}
	}
	return n
}

// SetState moves an instance on: pending, running, shutting-down, terminated.
func (s *Server) SetState(id, state, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.ID == id {
			i.State, i.Reason = state, reason
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	switch err := r.ParseForm(); {
	case err != nil || r.Method != http.MethodPost:
		refuse(w, http.StatusBadRequest, "InvalidRequest")
	case r.Header.Get("Authorization") == "":
		refuse(w, http.StatusUnauthorized, "AuthFailure")
	case r.PostForm.Get("Action") == "RunInstances":
		s.run(w, r.PostForm)
	case r.PostForm.Get("Action") == "DescribeInstances":
		s.describe(w, r.PostForm)
	default:
		refuse(w, http.StatusBadRequest, "InvalidAction")
	}
}

func (s *Server) run(w http.ResponseWriter, form url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, form)
	var f Fault
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	token, image := form.Get("ClientToken"), form.Get("ImageId")
	switch was, known := s.params[token]; {
	case f.Status != 0:
		refuse(w, f.Status, f.Code)
		return
	case image == "" || form.Get("MinCount") != "1" || form.Get("MaxCount") != "1" || len(token) > 64:
		refuse(w, http.StatusBadRequest, "InvalidParameterValue")
		return
	case known && token != "" && was != form.Encode():
		refuse(w, http.StatusBadRequest, "IdempotentParameterMismatch")
		return
	}
	i := s.find(func(i *Instance) bool { return token != "" && i.Token == token })
	if i == nil {
		i = &Instance{
			ID: fmt.Sprintf("i-%017x", len(s.instances)+1), Token: token, Image: image, Type: form.Get("InstanceType"),
			Zone: form.Get("Placement.AvailabilityZone"), State: "pending", Tags: url.Values{},
		}
		for n := 1; form.Has(fmt.Sprintf("TagSpecification.1.Tag.%d.Key", n)); n++ {
			i.Tags.Set(form.Get(fmt.Sprintf("TagSpecification.1.Tag.%d.Key", n)), form.Get(fmt.Sprintf("TagSpecification.1.Tag.%d.Value", n)))
		}
		s.instances = append(s.instances, i)
		s.params[token] = form.Encode()
	}
	if f.Lose {
		panic(http.ErrAbortHandler)
	}
	reply(w, http.StatusOK, runResponse{RequestID: "req-1", reservation: s.reservation(i)})
}

func (s *Server) find(is func(*Instance) bool) *Instance {
	if i := slices.IndexFunc(s.instances, is); i >= 0 {
		return s.instances[i]
	}
	return nil
}

func (s *Server) describe(w http.ResponseWriter, form url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := describeResponse{RequestID: "req-1"}
	if id := form.Get("InstanceId.1"); id != "" {
		i := s.find(func(i *Instance) bool { return i.ID == id })
		if i == nil {
			refuse(w, http.StatusBadRequest, "InvalidInstanceID.NotFound")
			return
		}
		out.Reservations.Items = append(out.Reservations.Items, s.reservation(i))
		reply(w, http.StatusOK, out)
		return
	}
	start := 0
	if t := form.Get("NextToken"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil || n < 0 || n > len(s.instances) {
			refuse(w, http.StatusBadRequest, "InvalidNextToken")
			return
		}
		start = n
	}
	end := min(start+s.opts.PageSize, len(s.instances))
	for _, i := range s.instances[start:end] {
		if form.Get("Filter.1.Name") == "client-token" && i.Token == form.Get("Filter.1.Value.1") {
			out.Reservations.Items = append(out.Reservations.Items, s.reservation(i))
		}
	}
	if end < len(s.instances) {
		out.NextToken = strconv.Itoa(end)
	}
	reply(w, http.StatusOK, out)
}

type runResponse struct {
	XMLName   xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ RunInstancesResponse"`
	RequestID string   `xml:"requestId"`
	reservation
}

type describeResponse struct {
	XMLName      xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeInstancesResponse"`
	RequestID    string   `xml:"requestId"`
	Reservations struct {
		Items []reservation `xml:"item"`
	} `xml:"reservationSet"`
	NextToken string `xml:"nextToken,omitempty"`
}

type reservation struct {
	ID        string     `xml:"reservationId"`
	Owner     string     `xml:"ownerId"`
	Instances []instance `xml:"instancesSet>item"`
}

type instance struct {
	ID     string `xml:"instanceId"`
	Image  string `xml:"imageId"`
	Type   string `xml:"instanceType"`
	Token  string `xml:"clientToken"`
	State  string `xml:"instanceState>name"`
	Zone   string `xml:"placement>availabilityZone"`
	Reason string `xml:"stateReason>code,omitempty"`
}

func (s *Server) reservation(i *Instance) reservation {
	return reservation{ID: "r" + i.ID[1:], Owner: s.opts.Owner, Instances: []instance{
		{ID: i.ID, Image: i.Image, Type: i.Type, Token: i.Token, State: i.State, Zone: i.Zone, Reason: i.Reason},
	}}
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := xml.Marshal(v)
	if err != nil {
		panic(err) // of strings
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, status int, code string) {
	type failure struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	reply(w, status, struct {
		XMLName xml.Name `xml:"Response"`
		Error   failure  `xml:"Errors>Error"`
		ID      string   `xml:"RequestID"`
	}{Error: failure{code, code}, ID: "req-1"})
}
