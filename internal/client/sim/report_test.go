package sim_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(int, string) string { return ok(stored) }}
		r, err := p.run(t, t.Context(), sim.Options{Users: 3, Rate: 20, For: 5 * time.Second})
		try(t, err)
		r.Verification = &sim.Verification{Acknowledged: 100, Missing: 1, Examples: []string{"missing x"}}

		var table bytes.Buffer
		try(t, r.WriteTable(&table))
		for _, want := range []string{"open loop, 20 requests/s", "100 sent: 100 stored", "from the intended send time",
			"missing x"} {
			if !strings.Contains(table.String(), want) {
				t.Errorf("the table lacks %q:\n%s", want, table.String())
			}
		}
		if got := r.Summary(); !strings.HasPrefix(got, "sent=100 stored=100 duplicate=0 rejected=0 failed=0 ") ||
			!strings.Contains(got, " missing=1 ") {
			t.Errorf("the summary is %q", got)
		}
		text, err := json.Marshal(r)
		try(t, err)
		var back struct {
			Sent, Stored, Duplicate, Rejected, Failed *int
			Verification                              *struct{ Missing int }
		}
		if err := json.Unmarshal(text, &back); err != nil || back.Sent == nil || *back.Sent != 100 || back.Failed == nil ||
			back.Verification.Missing != 1 {
			t.Errorf("JSON is %s", text)
		}
		if r.Latency.Count != 100 || r.Lateness.Count != 100 || r.Served.Count != 100 {
			t.Errorf("%d latencies, %d of sending, %d of serving are measured, want 100 each", r.Latency.Count, r.Lateness.Count,
				r.Served.Count)
		}
	})
}
