package fhir

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// An object is a JSON object.
type object = map[string]any

// bulkData is the address of what the guide of exports defines.
const bulkData = "http://hl7.org/fhir/uv/bulkdata/"

// Metadata serves GET /fhir/metadata: the CapabilityStatement. It needs no credentials.
func (h *Handler) Metadata(w http.ResponseWriter, r *http.Request) {
	head, ok := h.negotiate(w, r)
	if !ok {
		return
	}
	text, err := json.Marshal(h.capabilities(r), json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and a time
	}
	_ = head.Write(w, r, append(text, '\n')) // an error means that the client has disconnected
}

// capabilities returns the CapabilityStatement (https://hl7.org/fhir/R4/capabilitystatement.html).
func (h *Handler) capabilities(r *http.Request) object {
	var supported []string
	for _, m := range builtIn {
		if url := profiles + m.profile; m.profile != "" && !slices.Contains(supported, url) {
			supported = append(supported, url)
		}
	}
	var params []object
	for _, p := range searchParams {
		if p.typ != "" {
			params = append(params, object{"name": p.name, "definition": "http://hl7.org/fhir/SearchParameter/" + p.definition,
				"type": p.typ, "documentation": p.about})
		}
	}
	read := object{"code": "read"}
	observation := object{
		"type": "Observation", "supportedProfile": supported, "versioning": "no-version",
		"referencePolicy": []string{"literal", "local"}, "searchParam": params,
		"interaction": []object{read, {"code": "search-type", "documentation": "GET, and POST to _search."},
			{"code": "create"},
			{"code": "update",
				"documentation": "Like create. The id is the one of the sign, the time and the device; what is stored never " +
					"changes. With the status entered-in-error, it erases the Observation, for a token with the right admin."}},
		"conditionalCreate": true, "updateCreate": true,
		"documentation": "Vital signs of devices, while they were assigned to a patient. A search needs patient, subject " +
			"or device. It may have _count, _sort=date or -date, and _summary=count.",
	}
	export := func(of string) []object {
		return []object{{
			"name": "export", "definition": bulkData + "OperationDefinition/" + of,
			"documentation": "It may have _outputFormat, _since, _type, and _typeFilter with searches of Observation.",
		}}
	}
	server := object{
		"mode":        "server",
		"interaction": []object{{"code": "transaction"}, {"code": "batch"}},
		"operation":   export("export"),
		"documentation": "Errors are OperationOutcomes. Unknown search parameters are ignored, or rejected with Prefer: " +
			"handling=strict. Prefer: return decides what a write is answered with, by default the resource.",
		"security": object{
			"description": "A token with the read right in the header field Authorization: Bearer, if the server has tokens. " +
				"Every search of a patient is recorded in an audit log."},
		"resource": []object{
			observation,
			{"type": "Device", "documentation": "The name of a device.", "interaction": []object{read},
				"versioning": "no-version"},
			{
				"type": "Patient", "documentation": "The id of a patient only.", "interaction": []object{read},
				"versioning": "no-version", "operation": export("patient-export"),
			},
			{
				"type": "Group", "documentation": "The devices whose names begin with the id. It can only be exported.",
				"operation": export("group-export"),
			},
		},
	}
	software := object{"name": "Pulsegate"}
	if h.opt.Version != "" {
		software["version"] = h.opt.Version
	}
	return object{
		"resourceType": "CapabilityStatement", "id": "pulsegate", "status": "active",
		"date": h.started.UTC().Truncate(time.Second), "publisher": "Pulsegate", "kind": "instance",
		"software":       software,
		"instantiates":   []string{bulkData + "CapabilityStatement/bulk-data"},
		"implementation": object{"description": "Pulsegate, a server for vital signs of wearables", "url": h.base(r)},
		"fhirVersion":    "4.0.1", "format": []string{contentType, "json"}, "rest": []object{server},
	}
}
