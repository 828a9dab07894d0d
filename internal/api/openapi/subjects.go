package openapi

import (
	"maps"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/reply"
)

// aboutSubjects describes who may read what was measured of a subject.
const aboutSubjects = "The subject is in the body, so that it is in no address. A token that is bound to subjects " +
	"reads its own. Another one must cover all devices that were ever assigned to the subject. Each request is " +
	"recorded in the audit log."

// ofSubject describes POST of an address about a subject. A page has a cursor in its body.
func (d *describer) ofSubject(op operation, paged bool) object {
	body := object{"subject": subjectID}
	if paged {
		body["cursor"] = described(str, "next_cursor of the previous page, with the same parameters.")
	}
	op.right, op.description = "read", op.description+" "+aboutSubjects
	op.body = object{"required": true, "content": object{jsonType: object{"schema": closed(body, "subject")}}}
	return object{"post": d.describe(op)}
}

func (d *describer) readingsOfSubject(problems []*reply.Problem, params []object) object {
	formats := query.Formats()[:query.SubjectFormats]
	return d.ofSubject(operation{
		id: "listReadingsOfSubject", summary: "Readings of a subject, of all devices",
		params: params, problems: problems,
		description: "The readings of all devices while they were assigned to the subject, by time and then by device. " +
			"In all other respects it is as the readings of a device.",
		answers: object{"200": ok("A page of readings.", content(formats, "Readings", "Reading"),
			"Pulsegate-Notice", "Pulsegate-Next-Cursor", "Content-Encoding")},
	}, true)
}

func (d *describer) aggregatesOfSubject(problems []*reply.Problem, params []object) object {
	formats := query.Formats()[:query.TextFormats]
	return d.ofSubject(operation{
		id: "listAggregatesOfSubject", summary: "Aggregates of a subject, over all devices",
		params: params, problems: problems,
		description: "A bucket has the values of all devices while they were assigned to the subject. " +
			"In all other respects it is as the aggregates of a device.",
		answers: object{"200": ok("A page of buckets. NDJSON and CSV have one line for each bucket and sign.",
			content(formats, "SubjectAggregates", "SubjectAggregate"), "Pulsegate-Next-Cursor", "Content-Encoding")},
	}, true)
}

func (d *describer) latestOfSubject(problems []*reply.Problem) object {
	return d.ofSubject(operation{
		id: "getLatestOfSubject", summary: "The latest value of each sign of a subject, and its assignments",
		problems:    problems,
		description: "The newest values that were measured while their device was assigned to the subject.",
		answers:     object{"200": ok("The latest values.", object{jsonType: ref("schemas", "SubjectLatest")})},
	}, false)
}

// alertsOfSubject describes the alerts of a subject. params are those of a range of alerts, from first.
func alertsOfSubject(problems []*reply.Problem, params []object) operation {
	from := maps.Clone(params[0])
	from["required"] = true
	params = append([]object{from}, params[1:]...)
	return operation{
		id: "listAlertsOfSubject", summary: "The alerts of a subject in a range, of all devices",
		params: params, problems: problems,
		description: "The parts of alerts that lie in the time in which their device was assigned to the subject. " +
			"In all other respects it is as the alerts of a device in a range. The bounds on time and on " +
			"alerts are for all devices together. " + alert.Notice,
		answers: object{"200": ok("The alerts, the newest first.", object{jsonType: ref("schemas", "Alerts")})},
	}
}

// addSubjects adds the schemas of answers about subjects. aggregate has the members of a line of aggregates, and value
// those of a latest value of a device. ranges is the schema of ranges by sign.
func (d *describer) addSubjects(to, aggregate, value, ranges object) {
	aggregate, value = maps.Clone(aggregate), maps.Clone(value)
	delete(aggregate, "device")
	delete(value, "subject")
	value["device"] = name
	latest := object{}
	for _, s := range d.signs().All() {
		latest[s.Field] = signSchema(s, ref("schemas", "SubjectValue"))
	}
	assignment := closed(object{
		"device": name, "from": described(instant, "Inclusive."),
		"to": described(instant, "Exclusive; absent if it has not ended."),
	}, "device", "from")
	maps.Copy(to, object{
		"SubjectAggregates": closed(object{
			"subject": subjectID, "step": step, "tz": str, "buckets": list("Bucket"), "next_cursor": next,
		}, "subject", "step", "tz", "buckets"),
		"SubjectAggregate": closed(aggregate,
			"from", "to", "subject", "sign", "count", "min", "max", "mean", "first", "last"),
		"SubjectValue": closed(value, "time", "value", "device"),
		"SubjectLatest": closed(object{
			"subject": subjectID, "latest": closed(latest), "flags_notice": notice,
			"ranges": described(ranges,
				"Ranges that are usual for the subject, by sign, where they are not those of all."),
			"unread": described(object{"type": "array", "minItems": 1, "items": ref("schemas", "Sign")},
				"Signs of which the latest value may be missing: too many readings would have to be read to find it."),
			"assignments": described(object{"type": "array", "items": assignment},
				"All assignments of the subject, by device and beginning."),
		}, "subject", "latest", "assignments", "flags_notice"),
	})
}
