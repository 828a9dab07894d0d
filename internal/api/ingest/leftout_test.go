package ingest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// disowning is an input of which a device disowns both values of each message.
type disowning struct {
	shape vitals.Shape
	why   codes.Doubt
}

func (d disowning) Decode(_ []byte, in *ingest.Intake) error {
	if in.Batch.Shape = d.shape; in.LeavesOut(d.why) {
		for _, field := range []string{"spo2_pct", "pulse_rate_bpm"} {
			in.LeftOut = append(in.LeftOut, ingest.LeftOut{Source: ingest.Mapping, Field: field, Why: d.why})
		}
	}
	return nil
}

// What is left out is counted by input and reason, reported, and no error.
func TestLeftOut(t *testing.T) {
	reported := 0
	core, err := ingest.New(storetest.NewMemory(), problem.New(), ingest.Config{
		StoreQuestionable: true, OnLeftOut: func(*ingest.LeftOut, vitals.Name, bool) { reported++ },
	})
	try(t, err)
	defer core.Close(context.Background())
	for _, tt := range []struct {
		in   disowning
		want string
	}{
		{disowning{vitals.Single, codes.Busy}, `{"status":"left_out"}`},
		{disowning{vitals.Array, codes.Busy}, `{"stored":0,"duplicate":0,"left_out":1}`},
		{disowning{vitals.Array, codes.Questionable}, `{"stored":0,"duplicate":0}`},
	} {
		w := httptest.NewRecorder()
		core.Handler(func(*http.Request) ingest.Input { return tt.in }).ServeHTTP(w,
			httptest.NewRequest("POST", "/", strings.NewReader("{}")))
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != tt.want {
			t.Errorf("%+v: %d %s, want %s", tt.in, w.Code, got, tt.want)
		}
	}
	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, core).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if want := `pulsegate_left_out_total{input="mapping",reason="busy"} 4`; !strings.Contains(rec.Body.String(), want) ||
		reported != 4 {
		t.Errorf("%d reported; metrics without %s", reported, want)
	}
}
