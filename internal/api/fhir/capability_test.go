package fhir_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
)

// The CapabilityStatement lists exactly the parameters that a strict search accepts, and the
// interactions that are served.
func TestMetadata(t *testing.T) {
	type interactions []struct{ Code string }
	type operations []struct{ Name, Definition string }
	codes := func(list interactions) (codes []string) {
		for _, i := range list {
			codes = append(codes, i.Code)
		}
		return codes
	}
	srv := serve(t, ward(t), fhir.Options{})
	var c struct {
		ResourceType, Status, Date, Kind, FHIRVersion string
		Format, Instantiates                          []string
		Implementation                                struct{ URL string }
		Software                                      struct{ Name, Version string }
		Rest                                          []struct {
			Mode        string
			Interaction interactions
			Operation   operations
			Resource    []struct {
				Type              string
				SupportedProfile  []string
				ConditionalCreate bool
				Interaction       interactions
				Operation         operations
				SearchParam       []struct{ Name, Type, Definition string }
			}
		}
	}
	try(t, json.Unmarshal([]byte(srv.get("metadata")), &c))
	if c.ResourceType != "CapabilityStatement" || c.Status != "active" || c.Kind != "instance" ||
		c.FHIRVersion != "4.0.1" || c.Date == "" ||
		c.Implementation.URL != srv.URL+"/fhir" || c.Software.Version != "test" || len(c.Rest) != 1 ||
		c.Rest[0].Mode != "server" || len(c.Rest[0].Resource) != 4 {
		t.Fatalf("%+v", c)
	}
	observation := c.Rest[0].Resource[0]
	if observation.Type != "Observation" ||
		!slices.Equal(codes(observation.Interaction), []string{"read", "search-type", "create", "update"}) ||
		!observation.ConditionalCreate ||
		!slices.Equal(codes(c.Rest[0].Interaction), []string{"transaction", "batch"}) {
		t.Errorf("%+v", c.Rest[0])
	}
	values := map[string]string{
		"patient": "p", "subject": "p", "device": "ppg-1", "code": "1", "category": "x", "date": "2026", "status": "final",
		"_lastUpdated": "2026",
	}
	for _, p := range observation.SearchParam {
		if p.Type == "" || p.Definition == "http://hl7.org/fhir/SearchParameter/" || values[p.Name] == "" {
			t.Errorf("parameter %+v", p)
		}
		srv.get("Observation?patient=p&"+p.Name+"="+values[p.Name], "Prefer", "handling=strict")
		delete(values, p.Name)
	}
	if len(values) > 0 {
		t.Errorf("not listed: %v", values)
	}
	if len(observation.SupportedProfile) != 6 {
		t.Errorf("the profiles are %q", observation.SupportedProfile)
	}
	exports := map[string]string{"": "export", "Patient": "patient-export", "Group": "group-export"}
	check := func(of, path string, got operations) {
		t.Helper()
		if want := exports[of]; len(got) != 1 || got[0].Name != "export" ||
			got[0].Definition != "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/"+want {
			t.Errorf("%s: the operations are %+v, want %s", of, got, want)
		}
		srv.kickOff(path + "$export")
		delete(exports, of)
	}
	check("", "", c.Rest[0].Operation)
	for _, other := range c.Rest[0].Resource[1:] {
		want := []string{"read"}
		switch other.Type {
		case "Patient":
			check("Patient", "Patient/", other.Operation)
		case "Group":
			check("Group", "Group/ppg-/", other.Operation)
			want = nil
		}
		if !slices.Equal(codes(other.Interaction), want) {
			t.Errorf("%s: %+v", other.Type, other)
		}
	}
	if len(exports) > 0 ||
		!slices.Equal(c.Instantiates, []string{"http://hl7.org/fhir/uv/bulkdata/CapabilityStatement/bulk-data"}) {
		t.Errorf("not listed: %v; instantiates %q", exports, c.Instantiates)
	}
}
