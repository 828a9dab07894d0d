package ingest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
	"pgregory.net/rapid"
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
		return ingest.Answer{Head: reply.NewHead(why.Problem.Status(), "text/plain"), Body: []byte("refused: " + why.Problem.Title())}
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
	if cfg.Records == nil {
		cfg.Records = store
	}
	cfg.Now = func() time.Time { return now }
	core, err := ingest.New(store, problem.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { core.Close(context.Background()) })
	h := core.HandlerOf(unitForm)
	return func(body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
}

func unitReading(device string, ms int, member string) string {
	return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, 1_790_000_000_000+ms, member)
}

// TestUnits checks that the readings of a unit are stored all or not at all, and what the answer
// says. Seen to fail when groups were appended without the comparison.
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
		{"nothing of it is stored", b + "|" + a, 200, "0 1 \n0 3 \n"},
		{"a unit that contradicts itself", unitReading("a", 3, `"spo2_pct":97`) + "|" + unitReading("a", 3, `"spo2_pct":96`), 200, "0 0 \n0 4 contradicts the stored value\n"},
		{"all in one with an invalid one", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" + unitReading("a", 4, `"spo2_pct":0`), 200, "1 0 no signal\n"},
		{"all in one with a contradiction", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" + contradicts, 200, "0 0 \n1 4 contradicts the stored value\n"},
		{"all in one", "!" + unitReading("a", 3, `"spo2_pct":97`) + "\n" + a, 200, "0 1 \n1 3 \n"},
		{"an invalid one in a unit", unitReading("a", 5, `"spo2_pct":97`) + "|" + unitReading("a", 6, `"spo2_pct":0`) + "\n" + unitReading("a", 7, `"spo2_pct":97`), 200, "0 0 no signal\n1 1 \n"},
		{"it was not stored", unitReading("a", 5, `"spo2_pct":96`), 200, "0 1 \n"},
		{"an awkward name", unitReading("-x", 5, `"spo2_pct":97`) + "|" + unitReading("a", 8, `"spo2_pct":97`), 200, "0 6 a new device may be named neither . nor .., nor begin with -\n0 0 \n"},
		{"more than a group", "!" + strings.Join([]string{a, a, a, a, a}, "\n"), 413, "refused: The body is too large"},
		{"units in several groups", strings.Repeat(unitReading("b", 1, `"spo2_pct":97`)+"|"+unitReading("b", 2, `"spo2_pct":97`)+"|"+unitReading("b", 3, `"spo2_pct":97`)+"\n", 2) + a, 200,
			"0 1 \n0 1 \n0 1 \n1 3 \n1 3 \n1 3 \n2 3 \n"},
		{"not JSON", "{", 400, "refused: The body is not valid"},
	} {
		if status, text := post(tt.body); status != tt.status || text != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.name, status, text, tt.status, tt.want)
		}
	}
}

// TestUnitsAtOnce checks with random units that are posted at once, and contradict each other,
// that each of them is stored as a whole or not at all, as its answer says.
func TestUnitsAtOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store := storetest.NewMemory()
		post := serveUnits(t, store, ingest.Config{})
		bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 11), 1, 4), 2, 6).Draw(rt, "bodies")
		answers := make([]string, len(bodies))
		var posts sync.WaitGroup
		for i, values := range bodies {
			posts.Go(func() {
				var lines []string
				for _, v := range values { // a time and one of three values
					lines = append(lines, unitReading("d", 1+v%4, fmt.Sprintf(`"spo2_pct":%d`, 95+v/4)))
				}
				_, answers[i] = post("!" + strings.Join(lines, "\n"))
			})
		}
		posts.Wait()
		device, _ := vitals.ParseName("d")
		records := make([]storage.Record, 10)
		n, err := store.Scan(context.Background(), storage.Range{Device: device, ToUnixMs: 1_800_000_000_000}, records)
		if err != nil {
			rt.Fatal(err)
		}
		stored := map[int]int{}
		for _, r := range records[:n] {
			v, _ := r.Values.Get(vitals.SpO2)
			stored[int(r.TimeUnixMs-1_790_000_000_000)] = int(v) / 100
		}
		for i, values := range bodies {
			accepted := !strings.Contains(answers[i], " 0 ") && !strings.Contains(answers[i], " 4 ")
			for _, v := range values {
				if accepted && stored[1+v%4] != 95+v/4 {
					rt.Fatalf("body %v was answered %q, stored are %v", values, answers[i], stored)
				}
			}
		}
		// Every stored value is that of an accepted body.
		for ms, value := range stored {
			found := false
			for i, values := range bodies {
				accepted := !strings.Contains(answers[i], " 0 ") && !strings.Contains(answers[i], " 4 ")
				for _, v := range values {
					found = found || accepted && 1+v%4 == ms && 95+v/4 == value
				}
			}
			if !found {
				rt.Fatalf("%d at %d is stored, but only rejected bodies have it: %q", value, ms, answers)
			}
		}
	})
}

// A scanCounter counts the calls of Scan, each of which is a query of PostgreSQL.
type scanCounter struct {
	*storetest.Memory
	scans int
}

func (c *scanCounter) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	c.scans++
	return c.Memory.Scan(ctx, r, dst)
}

// The records with which a unit is compared are read together, unless many others lie between
// them. New readings need none.
func TestUnitScans(t *testing.T) {
	store := &scanCounter{Memory: storetest.NewMemory()}
	post := serveUnits(t, store.Memory, ingest.Config{Records: store})
	unit := func(member string, times ...int) string {
		var readings []string
		for _, ms := range times {
			readings = append(readings, unitReading("a", ms, member), unitReading("b", ms, member))
		}
		return "!" + strings.Join(readings, "\n")
	}
	var all []int
	for i := range 1000 {
		all = append(all, 10*i)
	}
	for _, tt := range []struct {
		name, body string
		outcome    storage.Outcome
		most       int // scans
	}{
		{"new", unit(`"spo2_pct":97`, all...), storage.Stored, 0},
		{"again", unit(`"spo2_pct":97`, all[:100]...), storage.Duplicate, 2},
		{"with another sign", unit(`"heart_rate_bpm":60`, all[100:200]...), storage.Completed, 2},
		{"older", unit(`"spo2_pct":97`, 1, 2, 3), storage.Stored, 2},
		{"far apart", unit(`"spo2_pct":97`, 0, 5000, 9990), storage.Duplicate, 6},
	} {
		store.scans = 0
		status, text := post(tt.body)
		for line := range strings.Lines(text) {
			if !strings.HasSuffix(line, fmt.Sprintf(" %d \n", tt.outcome)) {
				t.Errorf("%s: %d %s, want the outcome %d", tt.name, status, line, tt.outcome)
				break
			}
		}
		if store.scans > tt.most {
			t.Errorf("%s: %d scans, want at most %d", tt.name, store.scans, tt.most)
		}
	}
}
