package fhir

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// A capabilityStatement is the resource of this name, as far as it is used here
// (https://hl7.org/fhir/R4/capabilitystatement.html).
type capabilityStatement struct {
	ResourceType   string         `json:"resourceType"`
	ID             string         `json:"id"`
	Status         string         `json:"status"`
	Date           time.Time      `json:"date"`
	Publisher      string         `json:"publisher"`
	Kind           string         `json:"kind"`
	Software       software       `json:"software"`
	Implementation implementation `json:"implementation"`
	FHIRVersion    string         `json:"fhirVersion"`
	Format         []string       `json:"format"`
	Rest           []rest         `json:"rest"`
}

type software struct {
	Name    string `json:"name"`
	Version string `json:"version,omitzero"`
}

type implementation struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

type rest struct {
	Mode          string        `json:"mode"`
	Documentation string        `json:"documentation"`
	Security      description   `json:"security"`
	Resource      []resource    `json:"resource"`
	Interaction   []interaction `json:"interaction,omitempty"`
}

type description struct {
	Description string `json:"description"`
}

type resource struct {
	Type              string        `json:"type"`
	SupportedProfile  []string      `json:"supportedProfile,omitempty"`
	Documentation     string        `json:"documentation"`
	Interaction       []interaction `json:"interaction"`
	Versioning        string        `json:"versioning"`
	ConditionalCreate bool          `json:"conditionalCreate,omitzero"`
	ReferencePolicy   []string      `json:"referencePolicy,omitempty"`
	SearchParam       []shownParam  `json:"searchParam,omitempty"`
}

type interaction struct {
	Code          string `json:"code"`
	Documentation string `json:"documentation,omitzero"`
}

type shownParam struct {
	Name          string `json:"name"`
	Definition    string `json:"definition"`
	Type          string `json:"type"`
	Documentation string `json:"documentation"`
}

// definitions has the address of the definition of each search parameter of FHIR R4. It is
// never modified.
var definitions = map[string]string{
	"patient": "clinical-patient", "subject": "Observation-subject", "device": "Observation-device", "code": "clinical-code",
	"category": "Observation-category", "date": "clinical-date", "status": "Observation-status", "_lastUpdated": "Resource-lastUpdated",
}

// Metadata serves GET /fhir/metadata: the CapabilityStatement. It needs no credentials.
func (h *Handler) Metadata(w http.ResponseWriter, r *http.Request) {
	head, ok := h.negotiate(w, r)
	if !ok {
		return
	}
	text, err := json.Marshal(h.capabilities(r))
	if err != nil {
		panic(err) // the types above can be marshaled
	}
	_ = head.Write(w, r, append(text, '\n')) // an error means that the client has disconnected
}

// capabilities returns the CapabilityStatement.
func (h *Handler) capabilities(r *http.Request) *capabilityStatement {
	observation := resource{
		Type:            "Observation",
		Documentation:   "Vital signs of devices, while they were assigned to a patient. A search needs patient, subject or device. It may have _count, _sort=date or -date, and _summary=count.",
		Interaction:     []interaction{{Code: "read"}, {Code: "search-type", Documentation: "GET, and POST to _search."}},
		Versioning:      "no-version",
		ReferencePolicy: []string{"literal", "local"},
	}
	for _, m := range mappings {
		if url := profiles + m.profile; !slices.Contains(observation.SupportedProfile, url) {
			observation.SupportedProfile = append(observation.SupportedProfile, url)
		}
	}
	for _, p := range searchParams() {
		if p.typ != "" {
			observation.SearchParam = append(observation.SearchParam, shownParam{p.name, "http://hl7.org/fhir/SearchParameter/" + definitions[p.name], p.typ, p.about})
		}
	}
	server := rest{
		Mode:          "server",
		Documentation: "Errors are OperationOutcomes. Unknown search parameters are ignored, or rejected with Prefer: handling=strict.",
		Security:      description{"A token with the read right in the header field Authorization: Bearer, if the server has tokens. Every search of a patient is recorded in an audit log."},
	}
	if h.opt.Writes {
		observation.Interaction = append(observation.Interaction, interaction{Code: "create"})
		observation.ConditionalCreate = true
		server.Interaction = []interaction{{Code: "transaction"}, {Code: "batch"}}
	}
	server.Resource = []resource{
		observation,
		{Type: "Device", Documentation: "The name of a device.", Interaction: []interaction{{Code: "read"}}, Versioning: "no-version"},
		{Type: "Patient", Documentation: "The id of a patient only.", Interaction: []interaction{{Code: "read"}}, Versioning: "no-version"},
	}
	return &capabilityStatement{
		ResourceType: "CapabilityStatement", ID: "pulsegate", Status: "active", Date: h.started.UTC().Truncate(time.Second), Publisher: "Pulsegate", Kind: "instance",
		Software:       software{"Pulsegate", h.opt.Version},
		Implementation: implementation{"Pulsegate, a server for vital signs of wearables", h.base(r)},
		FHIRVersion:    "4.0.1", Format: []string{contentType, "json"},
		Rest: []rest{server},
	}
}
