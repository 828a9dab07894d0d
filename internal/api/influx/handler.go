package influx

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// The addresses.
const (
	WritePath   = "/write"        // of InfluxDB 1
	WriteV2Path = "/api/v2/write" // of InfluxDB 2
	PingPath    = "/ping"
	HealthPath  = "/health"
)

// DefaultDeviceTag is the tag that names the device unless another one is configured.
const DefaultDeviceTag = "device"

// gatewayTag is the tag that may name the gateway.
const gatewayTag = "gateway"

// Options are the options of a [Handler].
type Options struct {
	Problems      *problem.Set
	Signs         *vitals.Signs
	IgnoreUnknown bool   // leave out unknown fields instead of rejecting the line
	MaxLineBytes  int    // of a line
	DeviceTag     string // the tag that names the device
	Mappings      *Mappings
	Version       string // of the program
	Ready         func() bool
}

// CheckDeviceTag reports whether a tag can name the device.
func CheckDeviceTag(tag string) bool { return tag != "" && tag != gatewayTag }

// A Handler serves what clients of InfluxDB write.
type Handler struct {
	opt    Options
	stored *reply.Head
	apis   [2]api
}

// An api is an interface of InfluxDB.
type api struct {
	path  string
	heads map[*reply.Problem]*reply.Head
}

// New returns a Handler.
func New(opt Options) *Handler {
	h := &Handler{opt: opt, stored: reply.NewHead(http.StatusNoContent, "", reply.NoStore())}
	for i, path := range []string{WritePath, WriteV2Path} {
		h.apis[i] = api{path, map[*reply.Problem]*reply.Head{}}
		for _, p := range opt.Problems.All() {
			h.apis[i].heads[p] = reply.NewHead(status(path, p), "application/json", problem.Options(p)...)
		}
	}
	return h
}

// status returns the status of a problem. Clients drop what they wrote after a 4xx, Telegraf's output for
// InfluxDB 1 also after 429. They keep it after a 503.
func status(path string, p *reply.Problem) int {
	switch s := p.Status(); {
	case s == http.StatusRequestTimeout, s == http.StatusTooManyRequests && path == WritePath:
		return http.StatusServiceUnavailable
	default:
		return s
	}
}

// errorCodes has the codes of InfluxDB 2 by status; others are invalid.
var errorCodes = map[int]string{
	http.StatusUnauthorized:          "unauthorized",
	http.StatusForbidden:             "forbidden",
	http.StatusRequestEntityTooLarge: "request too large",
	http.StatusTooManyRequests:       "too many requests",
	http.StatusInternalServerError:   "internal error",
	http.StatusServiceUnavailable:    "unavailable",
}

// reject returns the answer to a request that is rejected, or a part of it.
func (a *api) reject(p *reply.Problem, message string, retryAfter time.Duration) ingest.Answer {
	head := a.heads[p]
	body := []byte(`{"error":`)
	if a.path == WriteV2Path {
		body = []byte(`{"code":"` + cmp.Or(errorCodes[head.Status()], "invalid") + `","message":`)
	}
	return ingest.Answer{Head: head, Body: append(reply.AppendJSONString(body, message), "}\n"...), RetryAfter: retryAfter}
}

// Mount mounts the handler. receive returns a handler that stores messages of a form, and answers requests made by
// pages of other sites with crossSite.
func (h *Handler) Mount(read, post func(template string, h http.Handler),
	receive func(form ingest.Form, crossSite http.Handler) http.Handler, crossSiteDetail string) {
	for i := range h.apis {
		a := &h.apis[i]
		form := func(r *http.Request) ingest.Input { return h.newInput(a, r) }
		crossSite := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := a.reject(h.opt.Problems.UntrustedOrigin, crossSiteDetail, 0)
			_ = answer.Write(w, r) // an error means that the client has disconnected
		})
		post(a.path, withToken(receive(form, crossSite)))
	}
	// Both names are of InfluxDB's clients; the values tell people what answers.
	read(PingPath, reply.New(http.StatusNoContent, "", nil, reply.Header("X-Influxdb-Build", "Pulsegate"),
		reply.Header("X-Influxdb-Version", h.opt.Version)))
	health := func(status int, state, message string) http.Handler {
		return reply.JSON(status, map[string]any{"name": "pulsegate", "message": message, "status": state, "checks": []any{},
			"version": h.opt.Version}, reply.NoStore())
	}
	pass, fail := health(http.StatusOK, "pass", "ready to store readings"),
		health(http.StatusServiceUnavailable, "fail", "cannot store readings now")
	read(HealthPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.opt.Ready() {
			pass.ServeHTTP(w, r)
			return
		}
		fail.ServeHTTP(w, r)
	}))
}

// withToken lets clients present their token as those of InfluxDB do: with the scheme Token, as the
// password of the scheme Basic, or as the parameter p. Several tokens remain several, which are rejected.
func withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var bearer []string
		for _, value := range r.Header["Authorization"] {
			scheme, text, _ := strings.Cut(value, " ")
			switch strings.ToLower(scheme) {
			case "token": // InfluxDB 1.8 takes the user's name and the password
				value = "Bearer " + text[strings.LastIndexByte(text, ':')+1:]
			case "basic":
				if pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
					_, password, _ := strings.Cut(string(pair), ":")
					value = "Bearer " + password
				}
			}
			bearer = append(bearer, value)
		}
		for _, password := range r.URL.Query()["p"] {
			if password == "" {
				continue
			}
			scheme := "Bearer "
			if oidc.IsJWT(password) {
				scheme = "" // rejected: it is somebody's identity, and proxies may log it
			}
			bearer = append(bearer, scheme+password)
		}
		if len(bearer) > 0 {
			r = r.WithContext(r.Context()) // a copy
			r.Header = r.Header.Clone()
			r.Header["Authorization"] = bearer
		}
		next.ServeHTTP(w, r)
	})
}

// A precision is the unit of timestamps.
type precision struct {
	perMs int64 // units in a millisecond, or 0
	ms    int64 // milliseconds in a unit, or 0
}

// precisions has the precisions by their names in either API. It is never modified.
var precisions = map[string]precision{
	"": {perMs: 1e6}, "n": {perMs: 1e6}, "ns": {perMs: 1e6}, "u": {perMs: 1e3}, "us": {perMs: 1e3}, "ms": {ms: 1},
	"s": {ms: 1e3}, "m": {ms: 60e3}, "h": {ms: 3600e3},
}

// unixMs returns a timestamp in milliseconds, cut towards the past.
func (p precision) unixMs(text []byte) (int64, error) {
	n, err := vitals.ParseUnixMs(text)
	switch {
	case err == vitals.ErrTimeFormat:
		return 0, errTimestamp
	case err != nil:
		return 0, err
	case p.perMs > 0 && n%p.perMs < 0:
		return n/p.perMs - 1, nil
	case p.perMs > 0:
		return n / p.perMs, nil
	case n > vitals.MaxTimeUnixMs/p.ms:
		return 0, vitals.ErrFuture
	case n < vitals.MinTimeUnixMs/p.ms:
		return 0, vitals.ErrPast
	}
	return n * p.ms, nil
}

// NewInput returns the Input of lines whose timestamps have a precision, by its name in either API. It returns false if
// there is no such precision.
func NewInput(opt Options, named string) (in ingest.Input, ok bool) {
	p, ok := precisions[named]
	return &input{h: &Handler{opt: opt}, api: &api{path: WriteV2Path}, precision: p}, ok
}

// newInput returns the input of a request.
func (h *Handler) newInput(a *api, r *http.Request) *input {
	in := &input{h: h, api: a}
	query, err := url.ParseQuery(r.URL.RawQuery)
	var known bool
	in.precision, known = precisions[query.Get("precision")]
	switch {
	case err != nil:
		in.malformed = "The query is not valid."
	case !known || len(query["precision"]) > 1:
		in.malformed = "The precision must be one of ns, us, ms, s, n, u, m and h."
	}
	return in
}

// maxListed bounds the rejected lines in a message.
const maxListed = 100

// Respond implements [ingest.Responder].
func (s *input) Respond(o *ingest.Outcome) ingest.Answer {
	if r, rejected := o.Refusal(); rejected {
		return s.api.reject(r.Problem, cmp.Or(r.Detail, r.Problem.Title()), r.RetryAfter)
	}
	if o.AllStored() {
		return ingest.Answer{Head: s.h.stored}
	}
	message, dropped := []byte("partial write: "), 0
	because, wait := s.h.opt.Problems.Malformed, time.Duration(0) // 400
	for r := range o.Results() {
		if r.Problem == nil {
			continue
		}
		if r.RetryAfter > wait { // send all of it again: what is stored is then a duplicate
			because, wait = r.Problem, r.RetryAfter
		}
		if dropped++; dropped > maxListed {
			continue
		}
		message = strconv.AppendInt(append(message, "line "...), int64(r.Index)+1, 10)
		for _, text := range []string{r.Field, r.Reason} {
			if text != "" {
				message = append(append(message, ": "...), text...)
			}
		}
		message = append(message, "; "...)
	}
	if dropped > maxListed {
		message = append(strconv.AppendInt(append(message, "and "...), int64(dropped-maxListed), 10), " further lines; "...)
	}
	message = strconv.AppendInt(append(message, "dropped="...), int64(dropped), 10)
	return s.api.reject(because, string(message), wait)
}
