package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/dashboard"
	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/vitals"
)

// name is the schema of names of devices and gateways.
var name = object{"type": "string", "pattern": fmt.Sprintf("^[A-Za-z0-9._:-]{1,%d}$", vitals.MaxNameBytes)}

// Schemas of members.
var (
	instant = object{"type": "string", "format": "date-time",
		"pattern":  `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}(Z|[+-][0-9]{2}:[0-9]{2})$`,
		"examples": []string{"2026-11-21T10:00:00.123Z"}}
	wholeTime = object{"type": "string", "format": "date-time"}
	value     = object{"type": "number", "format": "double", "minimum": int64(vitals.MinValue),
		"maximum": int64(vitals.MaxValue)}
	count   = object{"type": "integer", "minimum": 0}
	some    = object{"type": "integer", "minimum": 1}
	str     = object{"type": "string"}
	next    = object{"type": "string", "description": "The cursor of the next page; absent on the last one."}
	names   = object{"type": "array", "minItems": 1, "items": str}
	details = object{"type": "object", "additionalProperties": str,
		"description": "What is known about checks that fail, by their names."}
	notice    = described(str, vitals.FlagNotice)
	step      = object{"type": "string"}
	flag      = object{"type": "boolean"}
	label     = described(str, "What people call the device, by the file of --devices; absent if it has no label.")
	group     = described(str, "The device's group, such as a ward; absent if it has none.")
	subjectID = object{"type": "string", "pattern": "^[A-Za-z0-9.-]{1,64}$"}
)

// schemas describes the documents.
func (d *describer) schemas() object {
	flags := object{"type": "array", "minItems": 1, "uniqueItems": true, "items": ref("schemas", "Flag")}
	offset := object{"type": "integer",
		"description": "The offset from UTC with which time was sent; absent if it is unknown.",
		"minimum":     vitals.MinUTCOffsetMinutes, "maximum": vitals.MaxUTCOffsetMinutes}
	subject := described(subjectID, "To whom the device was assigned at this time; absent if to nobody.")
	reading := object{
		"device": name, "time": instant, "gateway": name, "subject": subject,
		"received": described(instant, "When the server stored the reading."), "flags": flags,
		"utc_offset_minutes": offset,
	}
	latest, signs := object{}, object{}
	for _, s := range d.signs().All() {
		reading[s.Field] = signSchema(s, value)
		latest[s.Field] = signSchema(s, ref("schemas", "LatestValue"))
		signs[s.Field] = ref("schemas", "Summary")
	}
	summary := object{"count": some, "min": value, "max": value,
		"mean": described(value, "Rounded to the decimals of the sign."), "first": ref("schemas", "TimedValue"),
		"last": ref("schemas", "TimedValue")}
	aggregate := object{"device": name, "from": wholeTime, "to": wholeTime, "subject": subject,
		"sign": ref("schemas", "Sign")}
	for member, schema := range summary {
		aggregate[member] = schema
	}
	latestValue := object{
		"time": instant, "utc_offset_minutes": offset, "value": value, "subject": subject, "flags": flags,
	}
	stored := object{"stored": count, "duplicate": count,
		"left_out": described(count,
			"Readings that their devices disown, only if there are any. They are neither stored nor rejected.")}
	rejected := closed(object{"index": described(count, "0-based position in the batch."), "field": str, "reason": str},
		"index", "field", "reason")
	of := described(oneOf("subject", "device", "group"), "Whose range it is.")
	ownRange := closed(object{"min": value, "max": value, "of": of}, "of")
	own := object{}
	for _, s := range d.signs().All() {
		own[s.Field] = ref("schemas", "OwnRanges")
	}
	ranges := closed(own)
	ranges["minProperties"] = 1
	oneSign := closed(latest)
	oneSign["minProperties"] = 1
	all := object{
		"NewReading":   d.newReading(),
		"NewReadings":  d.oneOrMore("NewReading"),
		"DataPoint":    dataPoint(),
		"DataPoints":   d.oneOrMore("DataPoint"),
		"Measure":      measure(),
		"Outcome":      closed(object{"status": oneOf("stored", "duplicate", "left_out")}, "status"),
		"BatchOutcome": closed(stored, "stored", "duplicate"),
		"PartialOutcome": closed(object{"stored": count, "duplicate": count, "left_out": stored["left_out"],
			"rejected": object{"type": "array", "minItems": 1, "items": rejected}}, "stored", "duplicate", "rejected"),
		"Sign":        oneOf(d.signNames()...),
		"Flag":        oneOf(d.flagNames()...),
		"TimedValue":  closed(object{"time": instant, "value": value}, "time", "value"),
		"LatestValue": closed(latestValue, "time", "value"),
		"Reading":     closed(reading, "device", "time", "received"),
		"Readings":    closed(object{"readings": list("Reading"), "next_cursor": next, "flags_notice": notice}, "readings"),
		"Device": closed(object{
			"device": name, "label": label, "group": group,
			"ranges": described(ranges,
				"Ranges that are usual for the device and who wears it now, by sign, where they are not those of all."),
			"time": described(instant, "Time of the newest reading."), "latest": oneSign, "flags_notice": notice,
			"assigned_now": described(subjectID,
				"To whom the device is assigned now, whoever wore it at the times of the values; absent if to nobody."),
			"assigned_since": described(instant,
				"Since when it is assigned to assigned_now, or to nobody; absent if it always was. Not in lists."),
			"assignments": described(object{"type": "array", "minItems": 1, "items": closed(object{
				"subject": subjectID, "from": described(instant, "Inclusive."),
				"to": described(instant, "Exclusive; absent if it has not ended."),
			}, "subject", "from")}, "All assignments of the device, the oldest first; not in lists."),
			"stale": described(flag, "true, or absent; in lists by state, sorted by age or worst first, or with counts."),
			"worst": described(closed(object{"class": oneOf("alert", "flag", "old_flag", "silence_alert", "stale"),
				"sign": ref("schemas", "Sign"), "alert": str}, "class"),
				"Why the device is where it is, worst first, with the sign whose value is the reason, or the name of the alert. "+
					"Absent if nothing is wrong."),
		}, "device", "time", "latest"),
		"Devices": closed(object{
			"devices": list("Device"), "next_cursor": next, "flags_notice": notice,
			"counts": closed(object{"devices": count, "fresh": count, "stale": count, "flagged": count}, "devices", "fresh",
				"stale", "flagged"),
			"groups": described(names, "With counts: all groups of devices that the token covers, sorted; absent if none."),
		}, "devices", "flags_notice"),
		"OwnRanges": described(closed(object{"usual": ownRange, "critical": ownRange}),
			"Values outside of usual are flagged. Flagged ones in critical come before all others, worst first."),
		"Summary":   closed(summary, "count", "min", "max", "mean", "first", "last"),
		"Aggregate": closed(aggregate, "device", "from", "to", "sign", "count", "min", "max", "mean", "first", "last"),
		"Bucket": closed(object{"from": wholeTime, "to": wholeTime, "subject": subject, "signs": closed(signs)}, "from",
			"to", "signs"),
		"Aggregates": closed(object{"device": name, "step": step, "tz": str, "buckets": list("Bucket"), "next_cursor": next},
			"device", "step", "tz", "buckets"),
		"Bounds":     closed(object{"min": value, "max": value}),
		"PageLimits": closed(object{"default_limit": some, "max_limit": some}, "default_limit", "max_limit"),
		"SignLimits": closed(object{
			"number": described(count, "The order of the signs."), "label": str, "unit": str, "decimals": count, "loinc": names,
			"accepted": ref("schemas", "Bounds"), "validated_min": value, "usual": ref("schemas", "Bounds"),
			"critical": described(ref("schemas", "Bounds"), "Flagged values in it come before all others, worst first."),
			"retired":  described(flag, "true, or absent: the sign is stored, but not accepted any more."),
			"pair": described(closed(object{"low": str, "label": str, "difference": str, "difference_label": str}, "low",
				"label", "difference", "difference_label"),
				"The sign that is given together with this one, and their difference in flags."),
		}, "number", "label", "unit", "decimals", "loinc", "accepted", "usual"),
		"Limits": d.limitsSchema(),
		"System": closed(object{"time": instant,
			"metrics": object{"type": "object", "propertyNames": oneOf(dashboard.SystemMetrics...),
				"additionalProperties": object{"type": "array", "items": object{"type": "object"}}}, "history": historySchema()},
			"time", "metrics", "history"),
		"Rejections": closed(object{
			"rejections": list("Rejection"),
			"total": described(count,
				"How many there were since the server started; absent with a token for some devices."),
		}, "rejections"),
		"Rejection": closed(object{
			"time":    described(instant, "When the server rejected the reading."),
			"input":   described(str, "The protocol, such as mqtt."),
			"gateway": described(name, "Absent if it is not known."), "device": described(name, "Absent if it is not known."),
			"field": described(str, "The cause; empty if it is the reading as a whole."), "reason": str,
			"left_out": described(count,
				"The number of values that the device disowns and that were left out for this reason within a minute; absent for "+
					"a rejection."),
		}, "time", "input", "field", "reason"),
		"Alerts": closed(object{
			"notice": described(str, "What alerts are not: to be shown wherever they are shown."),
			"from":   described(instant, "Begin of the range; absent if there is none."),
			"to": described(instant,
				"End of the range, now at the latest: what arrived then or later is not known. Absent if there is none."),
			"rules": described(count, "How many rules are in force."),
			"ready": described(flag,
				"Whether the states of all devices but unread ones are known since the start, or since the rules were changed; "+
					"no alert is listed before."),
			"alerts": list("Alert"),
			"total": described(count,
				"How many are active, of the devices that are selected and covered by the token; or how many there are "+
					"in the range."),
			"unread": described(count,
				"How many of these devices have stored readings that cannot be read, so that they may have other alerts."),
		}, "notice", "rules", "ready", "alerts", "total", "unread"),
		"Alert": closed(object{
			"name": str, "device": name, "label": label, "group": group,
			"sign":      described(str, "JSON name of the sign; absent if the alert is about silence."),
			"condition": described(str, "The rule in words."),
			"labels":    object{"type": "object", "additionalProperties": str, "description": "Further labels of the rule."},
			"subject":   described(subjectID, "Of a range only: to whom the device was assigned; absent if to nobody."),
			"since": described(instant,
				"Since when it is active, by measured time, and not before the present assignment of the device; of a range, the "+
					"earliest, but not before the assignment to the subject."),
			"fired": described(instant,
				"Of a range only: when it was reported, or would have been, by the server's clock; absent if this part had "+
					"ended before."),
			"ended": described(instant,
				"In live readings, and of a range: when it ended, by the server's clock, or when the assignment ended. Absent if "+
					"it was active at the end of the range."),
		}, "name", "device", "condition", "since"),
		"Session": closed(object{
			"tokens": described(flag, "Whether the server has tokens."), "signed_in": flag, "all_devices": flag,
			"expires":  described(wholeTime, "When the session ends at the latest; absent if it never does, or there is none."),
			"provider": described(flag, "Whether people sign in at a provider."),
		}, "tokens", "signed_in", "all_devices"),
		"Dropped": closed(object{"count": some}, "count"),
		"Alive":   closed(object{"status": oneOf("ok")}, "status"),
		"Ready": closed(object{"status": oneOf("ready"), "degraded": described(names, "What needs attention."),
			"details": details}, "status"),
		"Unready": closed(object{"status": oneOf("unavailable", "draining"), "failing": names, "pending": names,
			"degraded": names, "details": details}, "status"),
		"InfluxError": closed(object{"error": str}, "error"),
		"InfluxV2Error": closed(object{"code": oneOf("invalid", "unauthorized", "forbidden", "request too large",
			"too many requests", "internal error", "unavailable"), "message": str}, "code", "message"),
		"InfluxHealth": closed(object{
			"name": oneOf("pulsegate"), "message": str, "status": oneOf("pass", "fail"),
			"checks": object{"type": "array", "items": object{}, "maxItems": 0}, "version": str,
		}, "name", "message", "status", "checks", "version"),
		"Problem": closed(object{
			"type": described(str, "What kind of problem it is; stable."), "title": str, "status": object{"type": "integer"},
			"detail": str,
			"field":  described(str, "The field or parameter that is the cause."), "reason": str,
		}, "type", "title", "status"),
	}
	addChanges(all)
	d.addSubjects(all, aggregate, latestValue, ranges)
	return all
}

// newReading describes a reading that is sent. Which values it accepts follows from the
// limits of the server; only that the systolic pressure is above the diastolic one cannot be said in a
// schema.
func (d *describer) newReading() object {
	limits := &d.Ingest.Limits
	members := object{
		"device": described(name, "A new device may be named neither . nor .., nor begin with -."),
		"time": object{
			"description": fmt.Sprintf(
				"RFC 3339 with a zone, whose offset is kept, or integer Unix milliseconds. At most %v ahead of the server's "+
					"clock. Finer digits than milliseconds are cut.", limits.MaxAhead),
			"oneOf": []object{{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": limits.OldestUnixMs,
				"maximum": int64(vitals.MaxTimeUnixMs)}},
		},
		"gateway": described(name, "With a token or a client certificate, the server fills it in."),
	}
	for n, s := range d.signs().All() {
		if accepted := limits.Accepted[n]; !s.Retired {
			members[s.Field] = signSchema(s, object{"type": "number", "format": "double", "minimum": s.Float64(accepted.Min),
				"maximum": s.Float64(accepted.Max)})
		}
	}
	o := closed(members, "device", "time")
	o["description"] =
		"At least one sign. The systolic pressure is above the diastolic one. A field that is null counts as missing."
	together := object{}
	for _, p := range vitals.Pairs {
		high, low := d.signs().Field(p.High), d.signs().Field(p.Low)
		together[high], together[low] = []string{low}, []string{high}
	}
	o["dependentRequired"] = together
	if d.Ingest.IgnoreUnknown {
		o["additionalProperties"] = true
		return o
	}
	// At least one sign, in a form that generators of clients read: a device, a time and one more
	// member, or two if one of them is the gateway.
	o["minProperties"], o["dependentSchemas"] = 3, object{"gateway": object{"minProperties": 4}}
	return o
}

// oneOrMore returns the schema of a value or an array of them. It is a component, because
// generators of clients name the type of a body after it.
func (d *describer) oneOrMore(schema string) object {
	return object{"oneOf": []object{ref("schemas", schema), {"type": "array", "maxItems": d.Ingest.MaxReadings,
		"items": ref("schemas", schema)}}}
}

// limitsSchema describes the limits of a server.
func (d *describer) limitsSchema() object {
	seconds := object{"type": "number", "minimum": 0}
	page := ref("schemas", "PageLimits")
	signs := object{}
	for _, s := range d.signs().All() {
		signs[s.Field] = signSchema(s, ref("schemas", "SignLimits"))
	}
	return closed(object{
		"signs":                    closed(signs, d.signNames()...),
		vitals.Pairs[0].Difference: closed(object{"usual": ref("schemas", "Bounds")}, "usual"), "oldest": wholeTime,
		"max_ahead_seconds": seconds, "max_age_seconds": seconds, "stale_after_seconds": seconds, "devices": page,
		"readings": page, "aggregates": page,
		"max_step": str, "flags_notice": notice,
	}, "signs", vitals.Pairs[0].Difference, "oldest", "max_ahead_seconds", "stale_after_seconds", "devices", "readings",
		"aggregates", "max_step", "flags_notice")
}

// signs returns the signs of the server.
func (d *describer) signs() *vitals.Signs { return d.Ingest.Limits.Signs }

// signSchema returns a schema of a sign's value with its unit (UCUM) and its LOINC codes.
func signSchema(s *vitals.Definition, schema object) object {
	text := fmt.Sprintf("%s in %s, with %d decimals.", s.Label, s.Unit, s.Decimals)
	if len(s.LOINC) > 0 {
		text = strings.TrimSuffix(text, ".") + "; LOINC " + strings.Join(s.LOINC, ", ") + "."
	}
	o := described(schema, text)
	o["x-unit"], o["x-loinc"] = s.Unit, s.LOINC
	return o
}

// flagNames returns the names of all flags.
func (d *describer) flagNames() (all []string) {
	for _, f := range d.signs().EveryFlag() {
		all = append(all, f.String())
	}
	return all
}

// signNames returns the names of all signs.
func (d *describer) signNames() (all []string) {
	for _, s := range d.signs().All() {
		all = append(all, s.Field)
	}
	return all
}

// closed returns the schema of an object that has no other members.
func closed(members object, required ...string) object {
	o := object{"type": "object", "properties": members, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

// oneOf returns the schema of one of some words.
func oneOf(words ...string) object { return object{"type": "string", "enum": words} }

// list returns the schema of an array.
func list(schema string) object { return object{"type": "array", "items": ref("schemas", schema)} }

// described returns a copy of a schema with a description.
func described(schema object, description string) object {
	o := object{"description": description}
	for k, v := range schema {
		o[k] = v
	}
	return o
}

// dataPoint describes the data points of Open mHealth, without what their own schemas say.
func dataPoint() object {
	var names, versions []string
	body := object{
		"effective_time_frame":                       closed(object{"date_time": wholeTime}, "date_time"),
		"temporal_relationship_to_physical_activity": oneOf("at rest"),
		"system":             oneOf("peripheral capillary"),
		"measurement_method": oneOf("pulse oximetry"),
	}
	omh.EachSchema(func(name, version string, members []string, _ string) {
		names, versions = append(names, name), append(versions, version)
		for _, member := range members {
			body[member] = ref("schemas", "Measure")
		}
	})
	sheet := closed(object{"datasheet_type": str, "datasheet_reference": object{"type": "string",
		"pattern": "^urn:pulsegate:(device|gateway):[A-Za-z0-9._:-]+$"}}, "datasheet_reference")
	header := closed(object{
		"uuid": object{"type": "string", "format": "uuid"}, "source_creation_date_time": wholeTime,
		"modality": oneOf("sensed"),
		"schema_id": closed(object{
			"namespace": oneOf("omh"), "name": oneOf(distinct(names)...), "version": oneOf(distinct(versions)...),
		}, "namespace", "name", "version"),
		"external_datasheets": object{"type": "array", "minItems": 1, "items": sheet},
	}, "uuid", "schema_id", "source_creation_date_time", "external_datasheets")
	return closed(object{"header": header, "body": closed(body, "effective_time_frame")}, "header", "body")
}

// measure describes the values of data points.
func measure() object {
	var units []string
	omh.EachSchema(func(_, _ string, _ []string, unit string) { units = append(units, unit) })
	return closed(object{"value": object{"type": "number", "format": "double"}, "unit": oneOf(distinct(units)...)},
		"value", "unit")
}

// dataPointSchemas returns the names and versions of the schemas of Open mHealth.
func dataPointSchemas() string {
	var all []string
	omh.EachSchema(func(name, version string, _ []string, _ string) { all = append(all, name+" "+version) })
	return strings.Join(distinct(all), ", ")
}

// distinct sorts words and removes repeated ones.
func distinct(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// historySchema describes the history of the system.
func historySchema() object {
	number := object{"type": []string{"number", "null"}}
	members := object{"to": described(instant, "End of the newest step."), "step_seconds": object{"type": "number"}}
	required := []string{"to", "step_seconds"}
	for _, column := range dashboard.HistoryColumns {
		members[column] = object{"type": "array", "items": number,
			"description": "A value for each step, oldest first; null if it is not known."}
		required = append(required, column)
	}
	return closed(members, required...)
}
