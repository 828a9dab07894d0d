package server

import (
	"net/http"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/internal/api/openapi"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/mux"
)

// readingsTemplate is the route of POSTs in both lanes.
const readingsTemplate = "/v1/readings"

// routes returns the handler of the public listener, for its own hosts only. Requests are
// counted by the template of their route; those for other hosts count as unmatched.
func (s *server) routes(
	reads *query.Handler, subjects *query.Subjects, records *fhir.Handler, lines *influx.Handler,
	alerts *alert.Handler, rejected, description http.Handler,
) http.Handler {
	requests, state, problems := s.requests, s.health, s.problems
	// The middleware around it reads the template from the request.
	router := mux.NewRouter().AllowHeader(true).AnswerOptions(true).ShareRequest(true)
	// A path that is not clean matches no route: redirecting a POST would turn it
	// into a GET.
	router.SkipClean(true)
	const allow = "The Allow header lists the methods of this address."
	router.NotFoundHandler = fhirOr(records.Reject(problems.NotFound, ""), problems.NotFound.Answer("", nil))
	router.MethodNotAllowedHandler = fhirOr(records.Reject(problems.MethodNotAllowed, allow),
		problems.MethodNotAllowed.Answer(allow, nil))

	// whose Route belongs to the caller: the fast lane counts there as well
	counted := map[string]bool{readingsTemplate: true}
	handle := func(template string, h http.Handler, methods ...string) {
		if !counted[template] {
			counted[template] = true
			requests.Route(template)
		}
		router.Handle(template, h).Methods(methods...)
	}
	readHere := func(template string, h http.Handler) { handle(template, h, http.MethodGet, http.MethodHead) }
	post := func(template string, h http.Handler) { handle(template, h, http.MethodPost) }
	read, search := readHere, post
	if origins := s.parsed.origins; origins != nil {
		read = func(template string, h http.Handler) {
			handle(template, origins.readable(h, "GET, HEAD"), http.MethodGet, http.MethodHead, http.MethodOptions)
		}
		search = func(template string, h http.Handler) {
			handle(template, origins.readable(h, http.MethodPost), http.MethodPost, http.MethodOptions)
		}
	}
	untrusted := problems.UntrustedOrigin.Answer(crossSiteDetail, nil)
	post(readingsTemplate, s.receives(nil, untrusted))
	post("/v1/omh", s.receives(omh.Form, untrusted))
	lines.Mount(readHere, post, s.receives, crossSiteDetail)
	post("/v1/mapped/{name}", s.receivesMapped(untrusted))
	reads.Mount(read)
	read(rejections.Path, rejected)
	read(alert.Path, alerts)
	read(openapi.Path, description)
	full := http.HandlerFunc(s.live.Full)
	read("/v1/live", noGuests(s.streams(s.live), full))
	ask := search // with POST, what is not for pages of other sites
	if s.parsed.origins == nil {
		ask = func(template string, h http.Handler) { post(template, sameSiteOnly(h, untrusted)) }
	}
	subjects.Mount(ask)
	ask(alert.SubjectPath, alerts.OfSubject(subjects))
	if changes := noGuests(s.streams(s.feed), full); s.parsed.origins == nil {
		read(query.ChangesPath, changes)
		ask(query.ChangesPath, changes)
	} else {
		handle(query.ChangesPath, s.parsed.origins.readable(changes, "GET, HEAD, POST"), http.MethodGet, http.MethodHead,
			http.MethodPost, http.MethodOptions)
	}
	crossSite := records.Reject(problems.UntrustedOrigin, crossSiteDetail)
	put := func(template string, h http.Handler) { handle(template, sameSiteOnly(h, crossSite), http.MethodPut) }
	remove := func(template string, h http.Handler) { handle(template, h, http.MethodDelete) }
	receive := func(form ingest.Form) http.Handler { return s.receives(form, crossSite) }
	records.Mount(read, search, post, put, remove, receive)
	s.page.Mount(readHere, func(template string, h http.Handler, method string) {
		handle(template, sameSiteOnly(h, untrusted), method)
	})
	readHere("/livez", state.Livez())
	readHere("/readyz", state.Readyz())
	readHere("/healthz", state.Healthz())
	return requests.Handler(s.tracer.Handler(s.hosts.only(router, problems)))
}

// fhirOr serves requests for FHIR with one handler and all others with another.
func fhirOr(records, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == fhir.Path || strings.HasPrefix(r.URL.Path, fhir.Path+"/") {
			records.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// noGuests serves requests of guest connections with another handler.
func noGuests(h, guests http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listen.IsGuest(r.Context()) {
			guests.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

const crossSiteDetail = "The request was made by a page of another site."

// receives serves readings in a form. crossSite answers the requests that sameSiteOnly rejects.
func (s *server) receives(form ingest.Form, crossSite http.Handler) http.Handler {
	return sameSiteOnly(noGuests(s.core.Handler(form), s.core.Overloaded(form)), crossSite)
}

// receivesMapped serves payloads for the mappings that the path names.
func (s *server) receivesMapped(crossSite http.Handler) http.Handler {
	named := func(r *http.Request) ingest.Input { return s.parsed.mappings.Named(mux.Var(r, "name")) }
	known := s.receives(named, crossSite)
	unknown := s.problems.NotFound.Answer("No mapping has this name: see serve --mapping.", nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if named(r) == nil {
			unknown.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r)
	})
}

// sameSiteOnly lets crossSite answer requests that a browser makes for a page of another site: they
// come from inside the network, but the author of the page does not. Browsers mark
// them with header fields that the fast lane does not accept.
func sameSiteOnly(h, crossSite http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if protection.Check(r) != nil {
			crossSite.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// streams serves live readings, or changes. If its client vanishes, a stream must not keep its place for longer
// than if the client stops reading.
func (s *server) streams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if traced := tracing.Of(r); traced != nil {
			traced.Stream = true
		}
		_ = listen.EndDead(r.Context(), s.opt.pieceTimeout()) // elsewhere than on Linux, the kernel decides
		h.ServeHTTP(w, r)
	})
}
