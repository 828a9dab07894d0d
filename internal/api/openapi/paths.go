package openapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/reply"
)

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// zonePattern matches offsets from UTC, and what may be the name of a zone. In a query that is not
// escaped, a + is a space.
const zonePattern = "^([ +-]" + clock + "|[A-Za-z][A-Za-z0-9/_ +-]*)$"

// paths describes the addresses.
func (d *describer) paths() object {
	p := d.Problems
	refusals := []*reply.Problem{p.Unauthorized, p.InvalidCredentials, p.Forbidden, p.BadParameter, p.Overloaded}
	queries := slices.Concat(refusals, []*reply.Problem{p.Draining})
	reading := slices.Concat(queries, []*reply.Problem{p.ReadFailed, p.Unreadable})
	ofDevice := slices.Concat(reading, []*reply.Problem{p.UnknownDevice})
	paged := []*reply.Problem{p.NotAcceptable, p.OldHTTP}
	page := slices.Concat(ofDevice, paged)
	ofSubject := slices.Concat(reading, []*reply.Problem{p.Malformed})
	pageOfSubject := slices.Concat(ofSubject, paged)

	device := inPath("device", "Name of the device.", name)
	listed := object{"type": "array", "maxItems": query.MaxListed, "items": name}
	short := object{"type": "string", "maxLength": roster.MaxText}
	prefix := inQuery("prefix", "Only devices whose names begin with it.", name)
	cursor := inQuery("cursor",
		"next_cursor of the previous page, with the same other parameters. Default: the first page.",
		object{"type": "string"})
	end := inQuery("end",
		"A text that the answer ends with, after everything else, so that one that was cut off does not look complete. Not "+
			"with the format json.", name)
	format := func(formats []query.Format) object {
		return inQuery("format", "Format of the answer. Default: what Accept prefers, or json.", choices("", formats...))
	}
	all, texts := query.Formats(), query.Formats()[:query.TextFormats]
	from := inQuery("from", "Time of the first reading, inclusive: "+times+" Default: the first reading.", timeParam)
	to := inQuery("to", "Time of the last reading, exclusive: as from. Default: the last reading.", timeParam)
	receivedFrom := inQuery("received_from", "Only readings that arrived, or were completed, since then: as from.",
		timeParam)
	receivedTo := inQuery("received_to", "Only readings that arrived, or were last completed, before: as from.", timeParam)
	tz := func(use string) object {
		return inQuery("tz", "Zone of the IANA database, or offset from UTC,"+use, object{
			"type": "string", "default": "UTC", "pattern": zonePattern, "examples": []string{"Europe/Berlin", "+05:30"},
		})
	}

	const unlimited = "; without a limit, formats other than JSON have all"
	ofReadings := func(formats []query.Format) []object {
		return []object{
			from, to,
			tz(" in which dates in from and to begin."),
			inQuery("order", "By time, ascending or descending.", choices("asc", "asc", "desc")),
			limit("readings"+unlimited, query.DefaultReadings, query.MaxReadings), format(formats), end,
			inQuery("flags", "Whether to show flags.", choices("true", "true", "false")),
			inQuery("flag", "Only readings with this flag, or with any.",
				choices("", append([]string{"any"}, d.flagNames()...)...)),
			receivedFrom, receivedTo,
		}
	}
	ofAggregates := []object{
		from, to,
		{"name": "step", "in": "query", "required": true,
			"description": "Length of the buckets: a divisor of a day in s, m or h, such as 15m; 1d to 366d; or whole weeks, " +
				"such as 1w.",
			"schema": object{"type": "string", "pattern": "^[0-9]+[smhdw]$", "examples": []string{"15m", "1h", "1d"}}},
		tz(" with whose clock buckets are aligned, and in which dates in from and to begin."),
		limit("buckets"+unlimited, query.DefaultBuckets, query.MaxBuckets),
		format(texts), end, receivedFrom, receivedTo,
	}

	// store describes an address that stores the bodies in media.
	store := func(media object, op operation) object {
		op.right = "write"
		op.params = append(op.params,
			inHeader("Content-Encoding", "Compression of the body. Limits hold for the decompressed size.",
				object{"type": "string", "enum": []string{"identity", "gzip", "x-gzip", "zstd"}}))
		op.body = object{
			"required": true, "content": media,
			"description": d.sizes(),
		}
		op.answers = object{
			"200": ok("All readings are stored.",
				object{jsonType: object{"oneOf": []object{ref("schemas", "Outcome"), ref("schemas", "BatchOutcome")}}}),
			"207": ok("Some readings of a batch were rejected; the others are stored.",
				object{jsonType: ref("schemas", "PartialOutcome")}),
		}
		op.problems = append(op.problems,
			p.Malformed, p.Unauthorized, p.InvalidCredentials, p.Forbidden, p.Timeout, p.Conflict, p.LengthRequired, p.TooLarge,
			p.UnknownEncoding, p.Invalid,
			p.TooManyReadings, p.TooManyContradictions, p.OutcomeUnknown, p.Overloaded, p.Draining, p.DiskLow, p.StoreDamaged,
			p.TooManyDevices, p.StoreFailed)
		return object{"post": d.describe(op)}
	}
	alive := func(id, summary string) object {
		return d.get(operation{id: id, summary: summary,
			answers: object{"200": ok("It runs.", object{jsonType: ref("schemas", "Alive")})}})
	}
	ofAlerts := []object{
		inQuery("from", "Begin of the range, inclusive: "+times, timeParam),
		inQuery("to", "End of the range, exclusive: as from. Default: now.", timeParam),
		tz(" in which dates in from and to begin."),
		limit("alerts", alert.DefaultLimit, alert.MaxLimit),
	}
	session := d.get(operation{
		id: "getSession", summary: "Whether a browser is signed in",
		answers: object{"200": ok("The session. That of a kiosk's token gets its cookie again, which lasts longer then.",
			object{jsonType: ref("schemas", "Session")}, "Set-Cookie")},
	})
	session["post"] = d.describe(operation{
		id: "signIn", summary: "Begin a session with a token that may read",
		body: object{"required": true,
			"content": object{jsonType: object{"schema": closed(object{"token": str}, "token")}}},
		answers:  object{"204": ok("The session has begun; its cookie allows to read.", nil, "Set-Cookie")},
		problems: []*reply.Problem{p.Malformed, p.InvalidCredentials, p.Forbidden, p.NotFound},
	})
	session["delete"] = d.describe(operation{
		id: "signOut", summary: "End the session",
		answers: object{
			"200": ok("There is no session, and at the address the provider ends its own.",
				object{jsonType: closed(object{"continue": str}, "continue")}, "Set-Cookie"),
			"204": ok("There is no session.", nil, "Set-Cookie"),
		},
	})
	html := object{"text/html; charset=utf-8": object{"type": "string"}}
	pageFields := []string{"Content-Security-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy",
		"Referrer-Policy", "Vary", "X-Content-Type-Options"}
	finished := append([]string{"Set-Cookie"}, pageFields...)
	return object{
		"/v1/readings": store(object{jsonType: object{"schema": ref("schemas", "NewReadings")},
			linesType: object{"schema": lines(linesType, "NewReading")}}, operation{
			id: "sendReadings", summary: "Store readings",
			description: "Stores one reading, an array of readings, or NDJSON, a reading on each line. The body decides which " +
				"it is, and the Content-Type is " +
				"ignored. An answer of 200 or 207 is sent after the readings are on stable storage. Sending a reading again is " +
				"always safe: it is " +
				"answered as a duplicate. A query is ignored.",
		}),
		"/v1/omh": store(object{jsonType: object{"schema": ref("schemas", "DataPoints")}}, operation{
			id: "sendDataPoints", summary: "Store data points of Open mHealth",
			description: "Stores one data point, or an array of them, with these schemas of omh: " + dataPointSchemas() + ". " +
				"In all other respects it is as POST /v1/readings.",
		}),
		influx.WritePath:   d.influxWrite("writeInfluxLines", "InfluxDB 1", "InfluxError"),
		influx.WriteV2Path: d.influxWrite("writeInfluxV2Lines", "InfluxDB 2", "InfluxV2Error"),
		influx.PingPath: d.get(operation{
			id: "ping", summary: "The version, for clients of InfluxDB",
			answers: object{"204": ok("It runs.", nil, "X-Influxdb-Build", "X-Influxdb-Version")},
		}),
		influx.HealthPath: d.get(operation{
			id: "getHealth", summary: "Whether the server can store readings, for clients of InfluxDB",
			answers: object{
				"200": ok("It can.", object{jsonType: ref("schemas", "InfluxHealth")}),
				"503": ok("It cannot, or it is about to stop.", object{jsonType: ref("schemas", "InfluxHealth")}),
			},
		}),
		"/v1/mapped/{name}": store(
			object{jsonType: object{"schema": object{"anyOf": []object{{"type": "object"}, {"type": "array", "items": object{}},
				{"type": "number"}, {"type": "string"}}}}}, operation{
				id: "sendMapped", summary: "Store readings of payloads that others designed",
				description: "Stores payloads, JSON values one after another, as the mappings of a name map them: see serve " +
					"--mapping. " +
					"In all other respects it is as POST /v1/readings.",
				params: []object{inPath("name", "Name of the mappings.", name)}, problems: []*reply.Problem{p.NotFound},
			}),
		"/v1/devices": d.get(operation{
			id: "listDevices", summary: "Devices, with the latest value of each sign", right: "read",
			description: "Lists the devices that the token covers.",
			params: []object{
				prefix,
				inQuery("match", "Only devices with this text, of whatever case, in their names or labels.", short),
				inQuery("group", "Only devices of this group.", short),
				inQuery("state",
					"Only devices in this state: fresh, with a reading in the last "+settings.FormatDuration(d.StaleAfter)+
						" by measured time; stale, without one; or flagged, with a flag at a latest value.",
					choices("", "fresh", "stale", "flagged")),
				inQuery("sort",
					"By name; by age, the one that is silent for the longest time first; or the worst first: those with an active "+
						"alert about a sign, with a fresh value that has a flag, with an older one, "+
						"with an active alert about silence, then stale ones. The order is at most a second old.",
					choices("name", "name", "age", "worst")),
				inQuery("counts", "Whether to count devices by state, and to list all groups.", choices("false", "false", "true")),
				limit("devices", query.DefaultDevices, query.MaxDevices), cursor,
			},
			answers:  object{"200": ok("A page of devices.", object{jsonType: ref("schemas", "Devices")})},
			problems: reading,
		}),
		"/v1/devices/{device}": d.get(operation{
			id: "getDevice", summary: "A device, with the latest value of each sign", right: "read",
			params:   []object{device},
			answers:  object{"200": ok("The device.", object{jsonType: ref("schemas", "Device")})},
			problems: ofDevice,
		}),
		"/v1/devices/{device}/readings": d.get(operation{
			id: "listReadings", summary: "Readings of a device", right: "read",
			description: "Pages are stable while readings arrive. An answer without its end is incomplete. Formats other than " +
				"JSON, and pages of more than " +
				number(query.DefaultReadings) + " readings, are recorded in the audit log.",
			params: append(ofReadings(all), device, cursor),
			answers: object{"200": ok("A page of readings.", content(all, "Readings", "Reading"), "Pulsegate-Notice",
				"Pulsegate-Next-Cursor", "Pulsegate-Left-Out", "Content-Encoding")},
			problems: page,
		}),
		"/v1/devices/{device}/aggregates": d.get(operation{
			id: "listAggregates", summary: "Count, least, greatest, mean, first and last value of each sign, by time",
			right: "read",
			description: "Computed from the stored readings when it is requested. Buckets without readings are left out. A " +
				"bucket in which an assignment of the device begins or ends is divided there.",
			params: append(ofAggregates, device, cursor),
			answers: object{"200": ok("A page of buckets. NDJSON and CSV have one line for each bucket and sign.",
				content(texts, "Aggregates", "Aggregate"), "Pulsegate-Next-Cursor", "Content-Encoding")},
			problems: page,
		}),
		"/v1/limits": d.get(operation{
			id: "getLimits", summary: "Which values are accepted and flagged, and the bounds of queries", right: "read",
			answers:  object{"200": ok("The limits of this server.", object{jsonType: ref("schemas", "Limits")})},
			problems: refusals,
		}),
		rejections.Path: d.get(operation{
			id: "listRejections", summary: "The newest readings that were rejected without an answer", right: "read",
			description: "Lists the newest " + number(rejections.Max) +
				" readings that were rejected although their protocol has no way to tell the client, since the server started. " +
				"Rejections over HTTP are not listed: they are answered. A token for some devices lists only theirs.",
			params: []object{
				inQuery("device", "Only rejections of this device; may be repeated.", listed),
				limit("rejections", rejections.DefaultLimit, rejections.Max),
			},
			answers:  object{"200": ok("The rejections, the newest first.", object{jsonType: ref("schemas", "Rejections")})},
			problems: refusals,
		}),
		alert.Path: d.get(operation{
			id: "listAlerts", summary: "The active alerts, or those of a device in a range", right: "read",
			description: "Lists the alerts that are active by the rules of this server, the newest first; without rules there " +
				"are none. A token for some devices lists only theirs. " +
				"With from, to or tz, it lists those of one device that were active in a range of at most " +
				number(int(alert.MaxRange/(24*time.Hour))) +
				" days, by today's rules over what is stored; each is divided where an assignment of the device begins or ends. " +
				"The answer is 400 if more than " + number(alert.MaxReplayed) +
				" readings are to be evaluated, those before the range on which its alerts " +
				"depend included, if there are more than " + number(alert.MaxPast) + " alerts, or if it takes more than " +
				number(int(alert.MaxReplayTime/time.Second)) + " s; " + number(alert.MaxReplays) +
				" ranges are evaluated at a time, " +
				"one of them for one token or address, and others get 503 after 1 s. " + alert.Notice,
			params: slices.Concat([]object{
				inQuery("device", "Only alerts of this device; may be repeated, but not with from, to or tz, which need one.",
					listed),
			}, ofAlerts),
			answers:  object{"200": ok("The alerts, the newest first.", object{jsonType: ref("schemas", "Alerts")})},
			problems: reading,
		}),
		"/v1/system": d.get(operation{
			id: "getSystem", summary: "Metrics that the page shows, at most a second old, and their last hour", right: "read",
			description: "Needs a token for all devices.",
			answers:     object{"200": ok("The metrics, by name.", object{jsonType: ref("schemas", "System")})},
			problems:    []*reply.Problem{p.Unauthorized, p.InvalidCredentials, p.Forbidden, p.ReadFailed},
		}),
		"/v1/session": session,
		"/v1/session/begin": d.get(operation{
			id: "beginSignIn", summary: "Begin to sign in at the provider in a browser",
			answers: object{"303": ok("Continue at the provider.", nil, "Location", "Referrer-Policy", "Set-Cookie"),
				"503": ok("The provider does not answer.", html, pageFields...)},
			problems: []*reply.Problem{p.NotFound},
		}),
		"/v1/session/callback": d.get(operation{
			id: "finishSignIn", summary: "Begin a session of a browser that the provider has sent back",
			description: "The parameters are the provider's, as in OpenID Connect.",
			answers: object{
				"200": ok("The session has begun, and the page leads on.", html, finished...),
				"401": ok("Nobody has signed in.", html, finished...), "403": ok("The account may not read.", html, finished...),
				"503": ok("The provider does not answer.", html, finished...),
			},
			problems: []*reply.Problem{p.NotFound},
		}),
		"/": d.get(operation{
			id: "getPage", summary: "The page for people",
			answers: object{
				"200": ok("The page.", object{"text/html; charset=utf-8": object{"type": "string"}}, fileFields...),
				"304": ok("The copy is up to date.", nil, fileFields...),
			},
		}),
		"/assets/{version}/{file}": d.get(operation{
			id: "getAsset", summary: "A file of the page",
			params: []object{inPath("version", "Version of the page.", object{"type": "string"}),
				inPath("file", "Name of the file.", object{"type": "string"})},
			answers: object{
				"200": ok("The file.", object{
					"text/css; charset=utf-8": object{"type": "string"}, "text/javascript; charset=utf-8": object{"type": "string"},
					"text/plain; charset=utf-8": object{"type": "string"}, "image/svg+xml": object{"type": "string"},
				}, fileFields...),
				"304": ok("The copy is up to date.", nil, fileFields...),
			},
			problems: []*reply.Problem{p.NotFound},
		}),
		"/v1/live": d.get(operation{
			id: "streamReadings", summary: "The newest readings of devices, while they arrive", right: "read",
			description: "Server-Sent Events. The event reading has the newest reading of a device, after it is on stable " +
				"storage, at most four a second. " +
				"The event alert has an alert that has begun, or has ended if it has the member ended. The event dropped has the " +
				"number of events that were left out because the client did not read. " +
				"A comment every 5 s shows that the stream is alive. With it, and at the beginning, comes the event time with " +
				"the server's time.",
			params: []object{
				inQuery("device", "Only this device; may be repeated. Not together with prefix.", listed),
				prefix,
				inHeader("Last-Event-ID",
					"id of the last event: the stream begins with the newest reading of every selected device.",
					object{"type": "string"}),
			},
			answers: object{"200": ok("A stream of events.", object{"text/event-stream": object{
				"type": "string", "contentMediaType": "text/event-stream",
				"description": "The data of the events reading, alert, dropped and time.",
				"contentSchema": object{"oneOf": []object{ref("schemas", "Reading"), ref("schemas", "Alert"),
					ref("schemas", "Dropped"), closed(object{"time": instant}, "time")}},
			}}, "Pulsegate-Notice", "X-Accel-Buffering")},
			problems: queries,
		}),
		query.ChangesPath:                  d.changes(reading, prefix, end),
		query.SubjectsPath + "/readings":   d.readingsOfSubject(pageOfSubject, ofReadings(all[:query.SubjectFormats])),
		query.SubjectsPath + "/aggregates": d.aggregatesOfSubject(pageOfSubject, ofAggregates),
		query.SubjectsPath + "/latest":     d.latestOfSubject(ofSubject),
		alert.SubjectPath:                  d.ofSubject(alertsOfSubject(ofSubject, ofAlerts), false),
		Path: d.get(operation{
			id: "getDescription", summary: "This document",
			params: []object{inHeader("If-None-Match", "ETag of a copy of this document.", object{"type": "string"})},
			answers: object{
				"200": ok("This document.",
					object{jsonType: object{"type": "object", "properties": object{"openapi": str}, "required": []string{"openapi"}}},
					"ETag", "Content-Encoding"),
				"304": ok("The copy is up to date.", nil, "ETag", "Content-Encoding"),
			},
		}),
		"/livez":   alive("livez", "Whether the process runs"),
		"/healthz": alive("healthz", "The same as /livez"),
		"/readyz": d.get(operation{
			id: "readyz", summary: "Whether the server can store readings",
			answers: object{
				"200": ok("It can.", object{jsonType: ref("schemas", "Ready")}),
				"503": ok("It cannot, or it is about to stop.", object{jsonType: ref("schemas", "Unready")}),
			},
		}),
	}
}

// sizes describes the bounds of a body.
func (d *describer) sizes() string {
	return fmt.Sprintf("A single reading has at most %s bytes, a batch at most %s bytes and %s readings.",
		number(d.Ingest.MaxSingleBytes), number(d.Ingest.MaxBatchBytes), number(d.Ingest.MaxReadings))
}

// influxWrite describes an address to which clients of InfluxDB write, and whose errors are its errors.
func (d *describer) influxWrite(id, product, schema string) object {
	op := d.describe(operation{
		id: id, summary: "Store lines of InfluxDB's line protocol, as " + product + " does", right: "write",
		description: "Stores a reading of each line. The tag " + d.DeviceTag +
			" names the device, the tag gateway may name the gateway, and each field is a sign; measurement, " +
			"other tags and other parameters are ignored. Each line needs a timestamp. 204 is sent after the readings are on " +
			"stable storage. Tokens are also accepted with the " +
			"schemes Token and Basic, as the password. " + d.sizes(),
		params: []object{
			inQuery("precision", "Unit of the timestamps. Times are cut to the millisecond.",
				choices("ns", "ns", "us", "ms", "s", "n", "u", "m", "h")),
			inQuery("u", "Ignored.", str),
			inQuery("p", "The token, for clients that cannot send it in the Authorization header.", str),
			inHeader("Content-Encoding", "Compression of the body. Limits hold for the decompressed size.",
				object{"type": "string", "enum": []string{"identity", "gzip", "x-gzip", "zstd"}}),
		},
		body:    object{"required": true, "content": object{"text/plain": object{"schema": object{"type": "string"}}}},
		answers: object{"204": ok("All readings are stored.", nil)},
	})
	answers := op["responses"].(object)
	for status, text := range map[string]string{
		"400": "Some lines were rejected, as the message says; the others are stored. Or the request is not valid: " +
			"then none are.",
		"401": "The credentials are missing or not valid.",
		"411": "The length of the body is missing.",
		"413": "The body, or a line, is too large.",
		"415": "The content encoding is not supported.",
		"429": "The token's rate is exceeded, or the reading is not compared with those of other gateways.",
		"500": "It is unknown whether the readings were stored.",
		"503": "The server cannot store readings now, or the request took too long to arrive. Send it again.",
	} {
		if status == "429" && schema == "InfluxError" {
			continue // clients of InfluxDB 1 get 503
		}
		a := ok(text, object{jsonType: ref("schemas", schema)}, "WWW-Authenticate", "Accept-Encoding")
		if status == "429" || status == "503" {
			a["headers"].(object)["Retry-After"] = object{"description": "Seconds after which to send the request again.",
				"schema": object{"type": "integer", "minimum": 1}}
		}
		answers[status] = a
	}
	forbidden := ok("The credentials, or the origin of the request, do not allow this.",
		object{jsonType: ref("schemas", schema)}, "WWW-Authenticate")
	_, untrusted, _ := strings.Cut(d.Problems.UntrustedOrigin.Type(), "#")
	forbidden["content"].(object)[reply.ProblemType] = d.shared[untrusted].(object)["content"].(object)[reply.ProblemType]
	answers["403"] = forbidden
	return object{"post": op}
}

// fileFields are the header fields of the files of the page.
var fileFields = []string{"ETag", "Content-Encoding", "Content-Security-Policy", "Referrer-Policy",
	"Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy"}

// times explains times in parameters.
const times = "RFC 3339 with a zone, integer Unix milliseconds, a date (its midnight in tz), now, or a time before " +
	"now such as -24h or -7d (units s, m, h, d, w)."

var timeParam = object{
	"type": "string", "examples": []string{"2026-11-21T10:00:00Z", "1795255200000", "2026-11-21", "-24h"},
	// The sign of a zone may be a space: that is what a + in a query means.
	"pattern": "^(now|-[0-9]{1,9}[smhdw]|[1-9][0-9]{11,17}|" + // fewer digits look like seconds
		"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([Tt]" + clock + `:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+ -]` +
		clock + "))?)$",
}

const clock = "([01][0-9]|2[0-3]):[0-5][0-9]"

// limit describes the parameter limit.
func limit(what string, byDefault, most int) object {
	return inQuery("limit", "Maximum number of "+what+".", object{"type": "integer", "minimum": 1, "maximum": most,
		"default": byDefault})
}

// choices returns the schema of a parameter with some values.
func choices[T any](byDefault string, values ...T) object {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	o := object{"type": "string", "enum": texts}
	if byDefault != "" {
		o["default"] = byDefault
	}
	return o
}

// content returns the content of an answer: whole is the schema of JSON, line that of a line
// of NDJSON.
func content(formats []query.Format, whole, line string) object {
	content := object{}
	for _, f := range formats {
		switch f {
		case query.JSON:
			content[f.ContentType()] = ref("schemas", whole)
		case query.OMH: // its media type is that of JSON
			content[f.ContentType()] = object{"oneOf": []object{ref("schemas", whole),
				{"type": "array", "items": ref("schemas", "DataPoint")}}}
		case query.NDJSON:
			content[f.ContentType()] = lines(f.ContentType(), line)
		case query.CSV:
			content[f.ContentType()] = object{"type": "string"}
		default:
			content[f.ContentType()] = object{"type": "string", "contentMediaType": f.ContentType()} // binary
		}
	}
	return content
}

// lines returns the schema of a text with a value on each line.
func lines(mediaType, schema string) object {
	return object{"type": "string", "contentMediaType": mediaType, "description": "Each line matches contentSchema.",
		"contentSchema": ref("schemas", schema)}
}
