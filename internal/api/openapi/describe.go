package openapi

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/api/dashboard"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are the properties of one server that the document states.
type Options struct {
	Version  string
	Problems *problem.Set
	Ingest   ingest.Config

	DeviceTag  string // of lines in InfluxDB's line protocol
	StaleAfter time.Duration
	Tokens     bool // requests need credentials
}

// An object is a JSON object of the document.
type object = map[string]any

// A describer collects the responses that operations share.
type describer struct {
	Options
	shared object // in components
}

// docs is the address of the documentation.
const docs = "https://github.com/pulsegate/pulsegate/blob/main/docs/"

const about = "Limits, defaults and ranges in this document are those of this server. " +
	"Errors are problem documents (RFC 9457) with a stable type, whose status states what to do: " +
	"send the request again after 429 and 503, when Retry-After has passed, but not after other 4xx. " +
	"Addresses under /fhir are described by GET /fhir/metadata instead (HL7 FHIR R4). " +
	"HEAD is answered wherever GET is, and OPTIONS with the methods. " +
	"Other addresses are answered with 404 not-found, other methods with 405 method-not-allowed and Allow. " +
	"Paths are exact. GET rejects unknown and repeated parameters, where there are any. " +
	"A request that is not HTTP (400), has too large a header (431), or has an unknown Expect (417), " +
	"Transfer-Encoding (501) " +
	"or version (505) is answered in plain text."

// Path is the address of the document.
const Path = "/openapi.json"

// Handler returns a handler for GET and HEAD that serves the document. The document changes with the
// program and its options, so a client asks each time whether it has.
func Handler(opt Options) http.Handler {
	return dashboard.NewFile(Describe(opt), "Content-Type", jsonType, "Cache-Control", "no-cache")
}

// Describe returns the document.
func Describe(opt Options) []byte {
	d := &describer{opt, object{}}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Pulsegate", "version": opt.Version, "description": about,
			"license": object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"externalDocs": object{"url": docs + "api.md"},
		"servers":      []object{{"url": "/", "description": "The server of this document."}},
		"paths":        d.paths(),
		"components": object{
			"schemas":   d.schemas(),
			"headers":   headers,
			"responses": d.shared,
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer",
					"description": "A token with the right that the operation names."},
				"session": object{"type": "apiKey", "in": "cookie", "name": "pulsegate",
					"description": "A session begun with POST /v1/session. Over https the name is __Host-pulsegate."},
				"certificate": object{"type": "mutualTLS", "description": "A client certificate, if the server accepts them."},
			},
		},
	}
	text, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return append(text, '\n')
}

// An operation describes one method of an address.
type operation struct {
	id, summary, description string
	right                    string // if "", no credentials are needed
	params                   []object
	body                     object
	answers                  object // by status
	problems                 []*reply.Problem
}

// describe returns the Operation Object.
func (d *describer) describe(op operation) object {
	byStatus := map[int][]*reply.Problem{}
	everywhere := []*reply.Problem{d.Problems.UntrustedOrigin}
	if op.right != "" {
		everywhere = append(everywhere, d.Problems.KeysUnknown)
	}
	for _, p := range slices.Concat(op.problems, everywhere) {
		byStatus[p.Status()] = append(byStatus[p.Status()], p)
	}
	answers := maps.Clone(op.answers)
	for status, problems := range byStatus {
		answers[strconv.Itoa(status)] = d.rejection(problems)
	}
	o := object{"operationId": op.id, "summary": op.summary, "responses": answers, "security": d.security(op.right)}
	if op.description != "" {
		o["description"] = op.description
	}
	if len(op.params) > 0 {
		o["parameters"] = op.params
	}
	if op.body != nil {
		o["requestBody"] = op.body
	}
	return o
}

// security returns the ways to prove a right, each of which is enough. A server without tokens
// accepts requests without any; a client that is generated from its document sends a token all
// the same.
func (d *describer) security(right string) []object {
	if right == "" {
		return []object{}
	}
	ways := []object{{"token": []string{right}}, {"certificate": []string{}}}
	if right == "read" {
		ways = append(ways, object{"session": []string{}})
	}
	if !d.Tokens {
		ways = append(ways, object{})
	}
	return ways
}

// get returns the Path Item Object of an operation that GET calls.
func (d *describer) get(op operation) object { return object{"get": d.describe(op)} }

// rejection returns a reference to the response of problems with the same status. Its
// examples are the problems, and its header fields those that the problems set.
func (d *describer) rejection(problems []*reply.Problem) object {
	var names, titles []string
	fields := []string{"Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
	examples := object{}
	least, most := 0, 0
	for _, p := range problems {
		_, name, _ := strings.Cut(p.Type(), "#")
		names, titles = append(names, name), append(titles, p.Title())
		examples[name] = object{"value": object{"type": p.Type(), "title": p.Title(), "status": p.Status()}}
		own := problem.Header(p)
		for field := range headers {
			if own.Get(field) != "" {
				fields = append(fields, field)
			}
		}
		if l, m := ingest.RetryAfterSeconds(d.Problems, p); m > 0 {
			if least == 0 || l < least {
				least = l
			}
			most = max(most, m)
		}
	}
	key := strings.Join(names, ".")
	own := refs("headers", fields...)
	if status := problems[0].Status(); status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		after := object{"type": "integer", "minimum": max(least, 1)}
		if most > 0 {
			after["maximum"] = most
		}
		own["Retry-After"] = object{"description": "Seconds after which to send the request again.", "required": true,
			"schema": after}
	}
	d.shared[key] = object{
		"description": strings.Join(titles, "; ") + ".",
		"headers":     own,
		"content":     object{reply.ProblemType: object{"schema": ref("schemas", "Problem"), "examples": examples}},
	}
	return ref("responses", key)
}

// ok describes a 200, or another answer that is not a problem, with the schema of each media
// type.
func ok(description string, content object, fields ...string) object {
	media := object{}
	for name, schema := range content {
		media[name] = object{}
		if schema != nil {
			media[name] = object{"schema": schema}
		}
	}
	fields = append(fields, "Cache-Control", "X-Content-Type-Options", "Vary", "Access-Control-Allow-Origin",
		"Access-Control-Expose-Headers")
	return object{"description": description, "content": media, "headers": refs("headers", fields...)}
}

// ref returns a reference to a component.
func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// refs returns references to components by their names.
func refs(kind string, names ...string) object {
	o := object{}
	for _, name := range names {
		o[name] = ref(kind, name)
	}
	return o
}

// inQuery, inPath and inHeader describe parameters.
func inQuery(name, description string, schema object) object {
	return object{"name": name, "in": "query", "description": description, "schema": schema}
}

func inPath(name, description string, schema object) object {
	return object{"name": name, "in": "path", "required": true, "description": description, "schema": schema}
}

func inHeader(name, description string, schema object) object {
	return object{"name": name, "in": "header", "description": description, "schema": schema}
}

// headers are the header fields of responses. Fields that HTTP itself defines for the
// framing of messages are left out.
var headers = object{
	"Accept-Encoding":               text("Encodings that are accepted."),
	"Access-Control-Allow-Origin":   text("With --cors-origin: the origin that may read the answer."),
	"Access-Control-Expose-Headers": text("With --cors-origin: fields that pages of other origins may read."),
	"Cache-Control":                 text("no-store, except for the page, this document and health checks."),
	"Content-Encoding":              text("Compression of the body, if the client accepts it."),
	"Content-Security-Policy":       text("What the page may load: its own files."),
	"Cross-Origin-Opener-Policy":    text("same-origin."),
	"Cross-Origin-Resource-Policy":  text("same-origin."),
	"ETag":                          text("Changes with the content."),
	"Location":                      text("The provider's address."),
	"Pulsegate-Caught-Up":           text("A trailer of changes as CSV and Parquet: true or false."),
	"Pulsegate-Left-Out":            text("A trailer: the signs for which Open mHealth has no schema."),
	"Pulsegate-Next-Cursor": text(
		"A trailer: the cursor of the next page, if the request had a limit and there is one; of changes, the cursor of " +
			"what follows."),
	"Pulsegate-Notice": text(vitals.FlagNotice),
	"Referrer-Policy":  text("no-referrer."),
	"Set-Cookie": text(
		"The cookie of the session, HttpOnly and SameSite=Strict, or of a sign-in that has begun."),
	"Upgrade":                text("HTTP/1.1."),
	"Vary":                   text("Fields of the request on which the answer depends."),
	"WWW-Authenticate":       text("The scheme of authentication."),
	"X-Accel-Buffering":      text("no: proxies must not hold events back."),
	"X-Content-Type-Options": text("nosniff."),
	"X-Influxdb-Build":       text("Pulsegate."),
	"X-Influxdb-Version":     text("The version of Pulsegate."),
}

func text(description string) object {
	return object{"description": description, "schema": object{"type": "string"}}
}

// number formats an integer with commas.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
