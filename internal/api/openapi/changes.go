package openapi

import (
	"maps"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/reply"
)

// changes describes the address of changes.
func (d *describer) changes(problems []*reply.Problem, prefix, end object) object {
	p := d.Problems
	bodies := content([]query.Format{query.JSON, query.NDJSON, query.CSV, query.Parquet}, "Changes", "ChangeLine")
	bodies["text/event-stream"] = object{
		"type": "string", "contentMediaType": "text/event-stream", "description": "The data of the events.",
		"contentSchema": ref("schemas", "ChangeLine"),
	}
	op := operation{
		id: "readChanges", summary: "What has changed in the store", right: "read",
		description: "A consumer that applies what it gets has, whenever caught_up is true, what the store has for its " +
			"token, erasures included. " +
			"Without a cursor, it gets a copy of everything, and then what follows. Every change comes at least once.",
		params: []object{
			inQuery("after", "next of the previous answer, with the same device or prefix, signs and subject.",
				object{"type": "string"}),
			inQuery("start", "Where to begin without a cursor: oldest, now, or the time of arrival from which on: "+times,
				object{"anyOf": []object{{"enum": []string{"oldest", "now"}}, timeParam}}),
			inQuery("wait", "How long to wait for a change if there is none, such as 30s; at most 60s.",
				object{"type": "string", "pattern": `^[0-9.]+(ms|s)$`, "default": "0s"}),
			limit("changes", query.DefaultReadings, query.MaxReadings), prefix,
			inQuery("device", "Only this device. Not together with prefix.", name), end,
			inQuery("signs", "Only these signs: their fields, with commas between them.",
				object{"type": "string", "pattern": "^[a-z0-9_,]*$"}),
			inQuery("format", "Format of the answer. Default: what Accept prefers, or json. Only json has a default limit. "+
				"With ndjson and sse, the last line has next and caught_up; with csv and parquet, trailers have them.",
				object{"type": "string", "enum": query.FeedFormats}),
			inHeader("Last-Event-ID", "With sse, id of the last event, in place of after.", object{"type": "string"}),
		},
		answers: object{"200": ok("Changes.", bodies,
			"Vary", "X-Accel-Buffering", "Content-Encoding", "Pulsegate-Next-Cursor", "Pulsegate-Caught-Up")},
		problems: slices.Concat(problems, []*reply.Problem{p.CursorUnknown, p.OldHTTP, p.NotKept}),
	}
	get := d.get(op)
	op.id, op.summary = "readChangesOfSubject", "What has changed of one subject"
	op.body = object{"required": true,
		"content": object{jsonType: object{"schema": closed(object{"subject": str}, "subject")}}}
	op.problems = append(op.problems, p.Malformed)
	get["post"] = d.describe(op)
	return get
}

// addChanges adds the schemas of answers with changes.
func addChanges(to object) {
	state := func() object {
		return object{
			"next":      described(str, "The cursor of what follows, also if there is nothing yet."),
			"caught_up": described(flag, "Whether there was nothing else when the store was read last."),
			"behind_ms": described(count,
				"How long ago everything was received that comes before the cursor; absent while a copy is made."),
		}
	}
	page := state()
	page["changes"] = list("Change")
	heartbeat := closed(object{"kind": oneOf("heartbeat"), "next": str, "at": instant}, "kind", "next", "at")
	maps.Copy(to, object{
		"Changes":    closed(page, "changes", "next", "caught_up"),
		"ChangeLine": object{"anyOf": []object{ref("schemas", "Change"), closed(state(), "next", "caught_up"), heartbeat}},
		"Change": object{
			"type": "object", "required": []string{"kind"},
			"description": "A reading, to be added to what the consumer has of its device and time; or erased, expired, " +
				"assigned, unassigned, sign, begin or complete.",
			"properties": object{
				"kind":   oneOf("reading", "erased", "expired", "assigned", "unassigned", "sign", "begin", "complete"),
				"device": name, "time": instant, "received": instant, "changed": instant, "gateway": name, "subject": str,
				"utc_offset_minutes": object{"type": "integer"},
				"signs":              object{"anyOf": []object{{"type": "object"}, {"type": "array", "items": str}}},
				"subjects":           object{"type": "array", "items": str}, "from": instant, "to": instant, "before": instant,
				"copy": described(str, "Identifies the copy that begins or is complete."),
			},
		},
	})
}
