package ingest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A unitInput decodes units, one per line, of readings that are separated by |. A body that
// begins with ! is one unit. Its answer has one line per result.
type unitInput struct{}

func (unitInput) Decode(body []byte, in *ingest.Intake) error {
	text, whole := strings.CutPrefix(string(body), "!")
	in.Whole, in.Units = whole, true
	d := vitals.NewDecoder(in.Rules, vitals.DecoderOptions{})
	for index, line := range strings.Split(text, "\n") {
		for reading := range strings.SplitSeq(line, "|") {
			var b vitals.Batch
			if err := d.Decode([]byte(reading), in.NowUnixMs, &b); err != nil {
				return err
			}
			for _, r := range b.Readings {
				in.Batch.Readings = append(in.Batch.Readings, r)
				in.Batch.Index = append(in.Batch.Index, int32(index))
			}
			for _, r := range b.Refused {
				r.Index = index
				in.Batch.Refused = append(in.Batch.Refused, r)
			}
		}
	}
	return nil
}

var unitHead = reply.NewHead(http.StatusOK, "text/plain")

func (unitInput) Respond(o *ingest.Outcome) ingest.Answer {
	if why, rejected := o.Refusal(); rejected {
		return ingest.Answer{Head: reply.NewHead(why.Problem.Status(), "text/plain"),
			Body: []byte("refused: " + why.Problem.Title())}
	}
	var out []byte
	for r := range o.Results() {
		out = fmt.Appendf(out, "%d %d %s\n", r.Index, r.Outcome, r.Reason)
	}
	return ingest.Answer{Head: unitHead, Body: out}
}

func unitForm(*http.Request) ingest.Input { return unitInput{} }

// serveUnits returns a function that posts a body with a unitInput.
func serveUnits(t testing.TB, store *storetest.Memory, cfg ingest.Config) func(body string) (int, string) {
	t.Helper()
	cfg.Now = func() time.Time { return now }
	core, err := ingest.New(store, problem.New(), cfg)
	try(t, err)
	t.Cleanup(func() { core.Close(context.Background()) })
	h := core.Handler(unitForm)
	return func(body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
}

// A body that is rejected as a whole is charged like one reading, also if the input has decoded others before the
// error.
func TestRejectedBodyIsChargedOnce(t *testing.T) {
	k := newKeyring(t)
	core, err := ingest.New(storetest.NewMemory(), problem.New(),
		ingest.Config{Gate: k.gate, Now: func() time.Time { return now }})
	try(t, err)
	t.Cleanup(func() { core.Close(context.Background()) })
	h := core.Handler(unitForm)
	for _, tt := range []struct {
		body string
		want int
	}{
		{strings.Repeat(unitReading("a", 1, `"spo2_pct":97`)+"\n", 50) + "nonsense", 400},
		{unitReading("a", 2, `"spo2_pct":97`), 200},
		{unitReading("a", 3, `"spo2_pct":97`), 429},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Authorization", k.slow)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%d bytes: %d %s, want %d", len(tt.body), w.Code, w.Body, tt.want)
		}
	}
}

func unitReading(device string, ms int, member string) string {
	return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, 1_790_000_000_000+ms, member)
}

// TestUnits checks that the readings of a unit are stored all or not at all, and what the answer
// says. Seen to fail when no unit was marked.
func TestUnits(t *testing.T) {
	store := storetest.NewMemory()
	post := serveUnits(t, store, ingest.Config{MaxGroup: 4})
	a, b := unitReading("a", 1, `"spo2_pct":97`), unitReading("a", 2, `"spo2_pct":97`)
	contradicts := unitReading("a", 1, `"spo2_pct":98`)
	rate := unitReading("a", 1, `"heart_rate_bpm":60`)
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a reading", a, 200, "0 1 \n"},
		{"a unit with a contradiction", b + "|" + contradicts, 200, "0 0 \n0 4 contradicts the stored value\n"},
		{"beside another", b + "|" + contradicts + "\n" + rate, 200, "0 0 \n0 4 contradicts the stored value\n1 2 \n"},
		{"all in one with an invalid one", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" +
			unitReading("a", 4, `"spo2_pct":0`), 200, "1 0 no signal\n"},
		{"all in one with a contradiction", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" + contradicts, 200,
			"0 0 \n1 4 contradicts the stored value\n"},
		{"all in one", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" + a, 200, "0 1 \n1 3 \n"},
		{"an invalid one in a unit", unitReading("a", 5, `"spo2_pct":97`) + "|" + unitReading("a", 6, `"spo2_pct":0`) + "\n" +
			unitReading("a", 7, `"spo2_pct":97`), 200, "0 0 no signal\n1 1 \n"},
		{"it was not stored", unitReading("a", 5, `"spo2_pct":96`), 200, "0 1 \n"},
		{"an awkward name", unitReading("-x", 5, `"spo2_pct":97`) + "|" + unitReading("a", 8, `"spo2_pct":97`), 200,
			"0 6 a new device may be named neither . nor .., nor begin with -\n0 0 \n"},
		{"more than a group", "!" + strings.Join([]string{a, a, a, a, a}, "\n"), 413, "refused: The body is too large"},
		{"units in several groups",
			strings.Repeat(unitReading("b", 1, `"spo2_pct":97`)+"|"+unitReading("b", 2, `"spo2_pct":97`)+"|"+unitReading("b", 3,
				`"spo2_pct":97`)+"\n", 2) + a, 200,
			"0 1 \n0 1 \n0 1 \n1 3 \n1 3 \n1 3 \n2 3 \n"},
		{"not JSON", "{", 400, "refused: The body is not valid"},
	} {
		if status, text := post(tt.body); status != tt.status || text != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.name, status, text, tt.status, tt.want)
		}
	}
}
