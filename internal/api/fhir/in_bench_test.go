package fhir_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// BenchmarkReceive stores Bundles of new Observations on a disk, one after another. Its
// observations/s are durable ones: each Bundle is answered after its sync.
func BenchmarkReceive(b *testing.B) {
	for _, typ := range []string{"batch", "transaction"} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s of %d", typ, n), func(b *testing.B) { benchmarkReceive(b, typ, n) })
		}
	}
}

func benchmarkReceive(b *testing.B, typ string, n int) {
	store, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	try(b, err)
	defer store.Close()
	problems := problem.New()
	core, err := ingest.New(store, problems, ingest.Config{})
	try(b, err)
	defer core.Close(context.Background())
	assignments := &sentAssignments{all: []storage.Assignment{{Device: sentName(b, "d-1"), Subject: "p-1", ToUnixMs: storage.OpenEnd}}}
	h := core.Handler(fhir.New(store, assignments, fhir.Options{Service: query.Service{Problems: problems}}).BundleForm)
	at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	const described = `"meta":{"profile":["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdNumericObservation"]},"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs"}]}]`
	for b.Loop() {
		b.StopTimer()
		var bundle sentBundle
		for i := range n {
			if i%2 == 0 {
				at = at.Add(time.Second)
			}
			when := `"effectiveDateTime":"` + at.Format(time.RFC3339) + `"`
			if i%2 == 0 {
				bundle.post(described, sentSpO2, sentP1, sentD1, when, sentQuantity("97.5", "%"))
			} else {
				bundle.post(described, sentRate, sentP1, sentD1, when, sentQuantity("72", "/min"))
			}
		}
		body := bundle.as(typ)
		b.SetBytes(int64(len(body)))
		b.StartTimer()
		if w := send(h, body); w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "observations/s")
}
