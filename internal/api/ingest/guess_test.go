package ingest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
)

// spo2 returns a reading of a device at a time.
func spo2(device string, timeUnixMs int, tenths int) string {
	return fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":%d.%d}`, device, timeUnixMs, tenths/10, tenths%10)
}

// An answered is the answer to a batch.
type answered struct {
	Stored, Duplicate int
	Rejected          []struct {
		Index         int
		Field, Reason string
	}
}

// write sends a body with a token and returns the answer.
func write(t *testing.T, srv *server, auth, body string) (*http.Response, string) {
	t.Helper()
	text := authorized(body, auth)
	if srv.odd && srv.posts.Add(1)%3 == 0 {
		text = strings.Replace(text, "Host: x\r\n", "Host: x\r\nX-Odd: 1\r\n", 1)
	}
	return raw(t, srv, text)
}

func writeBatch(t *testing.T, srv *server, auth string, readings ...string) (a answered) {
	t.Helper()
	resp, text := write(t, srv, auth, "["+strings.Join(readings, ",")+"]")
	if err := json.Unmarshal([]byte(text), &a); err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
	}
	return a
}

// TestGuessInOneRequest sends every possible value of 25 stored ones in one request, with a
// token without the read right. Only the first value of each may be compared.
//
// Seen to fail with the mutant allow-repeated-values.
func TestGuessInOneRequest(t *testing.T) { eachFront(t, testGuessInOneRequest) }

func testGuessInOneRequest(t *testing.T, serve serveFunc) {
	k := newKeyring(t)
	_, srv := serve(t, ingest.Config{Gate: k.gate}, nil)
	const devices, least, most = 25, 900, 1000
	secret := map[string]int{}
	for i := range devices {
		device := fmt.Sprintf("ppg-%d", i)
		secret[device] = least + rand.IntN(most-least) // never most, which is stated first
		writeBatch(t, srv, k.ppg, spo2(device, 1000, secret[device]))
	}
	guesses := func(order func(n int) int) (all []string) {
		for device := range secret {
			for n := range most - least + 1 {
				all = append(all, spo2(device, 1000, order(n)))
			}
		}
		return all
	}
	all := guesses(func(n int) int { return most - n })
	a := writeBatch(t, srv, k.write, all...)
	if a.Stored != 0 || a.Duplicate != 0 || len(a.Rejected) != len(all) {
		t.Errorf("%d stored, %d duplicates, %d rejected; want all %d rejected", a.Stored, a.Duplicate,
			len(a.Rejected), len(all))
	}
	compared := 0
	for i, r := range a.Rejected {
		if r.Index != i {
			t.Fatalf("element %d of the rejected is reading %d", i, r.Index)
		}
		if r.Reason == "contradicts the stored value" {
			compared++
		} else if !strings.Contains(r.Reason, "states another value") || r.Field != "spo2_pct" {
			t.Errorf("reading %d: %s, %s", i, r.Field, r.Reason)
		}
	}
	if compared != devices {
		t.Errorf("%d readings were compared, want one for each device", compared)
	}
	// The same in random order, and with new readings, which are stored. One of them is sent
	// twice, and the first value of a device is right with a probability of 1/101.
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = append(all, spo2("new", 1, 970), spo2("new", 1, 970), spo2("new", 1, 971), spo2("new", 2, 972))
	a = writeBatch(t, srv, k.write, all...)
	if a.Stored != 2 || a.Duplicate > 10 || a.Stored+a.Duplicate+len(a.Rejected) != len(all) {
		t.Errorf("in a random order: %d stored, %d duplicates, %d rejected of %d", a.Stored, a.Duplicate,
			len(a.Rejected), len(all))
	}
	// A client with the read right may compare.
	a = writeBatch(t, srv, k.ppg, guesses(func(n int) int { return most - n })...)
	if a.Duplicate != devices || len(a.Rejected) != len(secret)*(most-least) {
		t.Errorf("with the read right: %d duplicates, %d rejected", a.Duplicate, len(a.Rejected))
	}
}

// TestStateOnce checks that a request may state only one value for each device, time and sign,
// and that other readings are accepted as usual.
func TestStateOnce(t *testing.T) { eachFront(t, testStateOnce) }

func testStateOnce(t *testing.T, serve serveFunc) {
	k := newKeyring(t)
	_, srv := serve(t, ingest.Config{Gate: k.gate}, nil)
	r := func(device string, ms int, member string) string {
		return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, ms, member)
	}
	const once = "a reading before it in the request states another value"
	for i, tt := range []struct {
		readings []string
		want     string
	}{
		{[]string{r("a", 1, `"spo2_pct":97`), r("a", 1, `"spo2_pct":97`), r("a", 2, `"spo2_pct":96`),
			r("b", 1, `"spo2_pct":95`)},
			`{"stored":3,"duplicate":1}`},
		{[]string{r("c", 1, `"spo2_pct":97`), r("c", 1, `"heart_rate_bpm":60`),
			r("c", 1, `"heart_rate_bpm":60,"spo2_pct":97`)},
			`{"stored":2,"duplicate":1}`},
		{[]string{r("d", 1, `"spo2_pct":97`), r("d", 1, `"spo2_pct":96`), r("d", 1, `"spo2_pct":97`)},
			`{"stored":1,"duplicate":1,"rejected":[{"index":1,"field":"spo2_pct","reason":"` + once + `"}]}`},
		{[]string{r("e", 2, `"spo2_pct":0`), r("e", 1, `"spo2_pct":97`), r("e", 2, `"spo2_pct":97`),
			r("e", 1, `"heart_rate_bpm":60,"spo2_pct":96`), r("e", 1, `"heart_rate_bpm":61`)},
			`{"stored":3,"duplicate":0,"rejected":[{"index":0,"field":"spo2_pct","reason":"no signal"},{"index":3,` +
				`"field":"spo2_pct","reason":"` + once + `"}]}`},
		{[]string{r("f", 3, `"spo2_pct":97`), r("f", 2, `"spo2_pct":97`), r("f", 1, `"spo2_pct":97`)},
			`{"stored":3,"duplicate":0}`},
	} {
		if _, got := write(t, srv, k.write, "["+strings.Join(tt.readings, ",")+"]"); got != tt.want {
			t.Errorf("%d: got %s, want %s", i, got, tt.want)
		}
	}
}

// guesses is the budget per hour of the gate in these tests.
const guesses = 10

// newGuessKeyring is newKeyring with a small budget for contradictions.
func newGuessKeyring(t *testing.T) *keyring {
	t.Helper()
	k := newKeyring(t)
	set, err := token.Open(k.Tokens, token.Options{Every: -1, Hourly: token.Hourly{Contradictions: guesses}})
	try(t, err)
	k.gate.Tokens.Close()
	t.Cleanup(set.Close)
	k.gate.Tokens = set
	return k
}

// TestGuessBudget guesses in one request after another, with a token without the read right.
// Once its budget is exhausted, right and wrong guesses must get the same answer until budget
// is available again; the audit log must have it; and other readings are accepted as usual.
//
// Seen to fail with the mutant ignore-contradictions.
func TestGuessBudget(t *testing.T) { eachFront(t, testGuessBudget) }

func testGuessBudget(t *testing.T, serve serveFunc) {
	k := newGuessKeyring(t)
	var later atomic.Int64
	core, srv := serve(t,
		ingest.Config{Gate: k.gate, Now: func() time.Time { return now.Add(time.Duration(later.Load())) }}, nil)
	expect := func(auth, body, want string) http.Header {
		t.Helper()
		resp, text := write(t, srv, auth, body)
		if got := fmt.Sprint(resp.StatusCode, " ", text); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		return resp.Header
	}
	const spent = `429 {"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#too-many-contradictions"`
	expect(k.ppg, spo2("ppg-1", 1000, 970), "200 ")
	expect(k.write, spo2("ppg-1", 1000, 970), "duplicate") // not charged
	for i := range guesses {
		expect(k.write, spo2("ppg-1", 1000, 900+i), "409 ")
	}
	for _, tenths := range []int{899, 970} {
		header := expect(k.write, spo2("ppg-1", 1000, tenths), spent)
		if wait, _ := strconv.Atoi(header.Get("Retry-After")); wait < 3600/guesses || wait > 3600/guesses*5/4+2 {
			t.Errorf("Retry-After %s, want about %d", header.Get("Retry-After"), 3600/guesses)
		}
	}
	const refused = `"field":"gateway","reason":"not compared, because too many readings contradicted those of other ` +
		`gateways; send it again later"}`
	expect(k.write, "["+spo2("ppg-1", 1000, 970)+","+spo2("ppg-1", 1001, 970)+"]",
		`207 {"stored":1,"duplicate":0,"rejected":[{"index":0,`+refused)
	expect(k.write, "["+spo2("ppg-1", 1000, 971)+","+spo2("ppg-1", 1001, 970)+"]",
		`207 {"stored":0,"duplicate":1,"rejected":[{"index":0,`+refused)
	expect(k.write, spo2("ppg-1", 1001, 971), "409 ") // the gateway's own record
	expect(k.write, `{"device":"ppg-1","time":1000,"heart_rate_bpm":60}`, "stored")
	expect(k.write, spo2("ppg-1", 2000, 970), "stored")
	for i := range 2 * guesses { // another token, with the read right
		expect(k.ppg, spo2("ppg-1", 1000, 900+i), "409 ")
	}
	expect(k.slow, spo2("ppg-1", 1000, 970), "duplicate") // another token
	later.Store(int64(time.Hour / guesses))
	expect(k.write, spo2("ppg-1", 1000, 970), "duplicate")
	expect(k.write, spo2("ppg-1", 1000, 971), "409 ")
	expect(k.write, spo2("ppg-1", 1000, 970), spent)

	if c := core.Counters(); c.Withheld != 5 || c.Conflict != 3*guesses+2 {
		t.Errorf("%d withheld and %d conflicts, want 5 and %d", c.Withheld, c.Conflict, 3*guesses+2)
	}
	if n := k.gate.Refused(audit.Contradictions); n != 5 {
		t.Errorf("%d requests recorded, want 5", n)
	}
	try(t, k.gate.Audit.Close())
	text, err := os.ReadFile(k.Log)
	try(t, err)
	digest, err := token.DigestOfHeader(k.write)
	try(t, err)
	want := fmt.Sprintf(`"event":"auth.refused","token":"%s","reason":"contradictions","peer":"127.0.0.1"`, digest.ID())
	if n := bytes.Count(text, []byte(want)); n != 5 {
		t.Errorf("the audit log holds %s %d times, want 5:\n%s", want, n, text)
	}
}

// TestGuessBudgetAtOnce checks that concurrent connections cannot exceed a budget.
func TestGuessBudgetAtOnce(t *testing.T) { eachFront(t, testGuessBudgetAtOnce) }

func testGuessBudgetAtOnce(t *testing.T, serve serveFunc) {
	k := newGuessKeyring(t)
	_, srv := serve(t, ingest.Config{Gate: k.gate}, nil)
	const devices = 40
	for i := range devices {
		write(t, srv, k.ppg, spo2(fmt.Sprintf("ppg-%d", i), 1000, 970))
	}
	var mu sync.Mutex
	answers := map[string]int{}
	var wg sync.WaitGroup
	for n := range 4 {
		conn := dial(t, srv)
		wg.Go(func() {
			in := bufio.NewReader(conn)
			for i := range devices {
				send(t, conn, authorized(spo2(fmt.Sprintf("ppg-%d", i), 1000, 960+n), k.write))
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				mu.Lock()
				answers[resp.Status[:3]]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if answers["409"] != guesses || answers["429"] != 4*devices-guesses {
		t.Errorf("answers %v, want %d of 409 and the others 429", answers, guesses)
	}
}

// backwards returns batch in reverse order.
func backwards(device string, n int) string {
	var readings []string
	for i := range n {
		readings = append(readings, spo2(device, i, 970))
	}
	slices.Reverse(readings)
	return "[" + strings.Join(readings, ",") + "]"
}
