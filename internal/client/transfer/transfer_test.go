package transfer_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

func TestTargets(t *testing.T) {
	for _, target := range []string{
		"", "127.0.0.1:8080", "localhost:8080", "ftp://host", "http://", "http:///v1", "http://host?", "http://host/?a=b",
		"http://host#", "http://host#top", "http://ho st", "http://host:port", "http://user:secret@host?", "user:secret@host",
		"http://host?token=secret",
	} {
		_, err := transfer.NewClient(target, transfer.Credentials{})
		if err == nil || !strings.HasPrefix(err.Error(), "--target is ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("NewClient(%q): got error %v, want an error about the target that reveals no secret", target, err)
		}
	}
	for _, target := range []string{"http://127.0.0.1:8080", "http://[::1]:8080/", "https://host/behind/a/proxy/"} {
		if _, err := transfer.NewClient(target, transfer.Credentials{}); err != nil {
			t.Errorf("NewClient(%q): got error %v, want none", target, err)
		}
	}
}

// TestStatuses sends a batch to a server that always responds with the same status.
func TestStatuses(t *testing.T) {
	const again = transfer.MaxTries
	for status, wantTries := range map[int]int{
		408: again, 429: again, 500: again, 502: again, 503: again, 504: again,
		400: 1, 401: 1, 403: 1, 404: 1, 405: 1, 409: 1, 411: 1, 413: 1, 415: 1, 422: 1, 501: 1, 505: 1,
		201: 1, 204: 1, 304: 1,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			tries := 0
			client, made := serve(t, func(w http.ResponseWriter, r *http.Request) {
				tries++
				if got := r.Method + " " + r.URL.Path + " " +
					r.Header.Get("Content-Type"); got != "POST /v1/readings application/json" {
					t.Errorf("got request %q", got)
				}
				if status >= 400 {
					w.Header().Set("Content-Type", "application/problem+json")
				}
				w.WriteHeader(status)
				if status >= 400 {
					io.WriteString(w, `{"type":"t","title":"no","status":999}`)
				}
			})
			refused := 0
			sum, err := transfer.Upload(t.Context(), client, open(t, head+rows(3)), transfer.UploadOptions{
				OnRefused: func(transfer.Refusal) { refused++ },
			})
			if tries != wantTries || len(*made) != wantTries-1 || refused != 0 {
				t.Errorf("got %d tries, %d waits and %d refusals, want %d tries, one wait less and no refusals", tries, len(*made),
					refused, wantTries)
			}
			want := transfer.Summary{Sent: 3, Failed: 3, Rows: 3}
			if sum != want {
				t.Errorf("got %+v, want %+v", sum, want)
			}
			var problem *transfer.Problem
			if !errors.As(err, &problem) || problem.Status != status {
				t.Fatalf("got error %v, want a Problem with status %d", err, status)
			}
			if status >= 400 && problem.Title != "no" {
				t.Errorf("got title %q, want the title in the response", problem.Title)
			}
			if got := strings.Contains(err.Error(), "gave up after 8 tries"); got != (wantTries == again) {
				t.Errorf("got error %q", err)
			}
			if !strings.HasPrefix(err.Error(), "send lines 2 to 4: ") {
				t.Errorf("got error %q, want it to name the lines", err)
			}
			for i, d := range *made {
				if base := 200 * time.Millisecond << i; d < base/2 || d >= base/2+base {
					t.Errorf("wait %d: got %v, want about %v", i, d, base)
				}
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		header string
		want   time.Duration // 0: the client's default
	}{
		{"1", time.Second},
		{"7", 7 * time.Second},
		{"30", transfer.MaxWait},
		{"3600", transfer.MaxWait},
		{"9223372036", transfer.MaxWait},
		{"9223372037", transfer.MaxWait}, // more nanoseconds than an int64 holds
		{"99999999999999999999999", transfer.MaxWait},
		{"", 0},
		{"0", 0},
		{"-5", 0},
		{"soon", 0},
		{"Wed, 21 Oct 2026 07:28:00 GMT", 0},
	} {
		tries := 0
		client, made := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if tries++; tries == 1 {
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(503)
				return
			}
			io.WriteString(w, `{"stored":1,"duplicate":0,"rejected":[]}`)
		})
		answer, err := client.SendBatch(t.Context(), []byte("[1]"), 1)
		if err != nil || answer.Stored != 1 || tries != 2 || len(*made) != 1 {
			t.Errorf("Retry-After %q: got %+v, error %v after %d tries, want one stored after 2", c.header, answer, err, tries)
			continue
		}
		own := (*made)[0] >= 100*time.Millisecond && (*made)[0] < 300*time.Millisecond
		if (c.want == 0 && !own) || (c.want != 0 && (*made)[0] != c.want) {
			t.Errorf("Retry-After %q: waited for %v, want %v", c.header, (*made)[0], c.want)
		}
	}
}

// TestLostAnswers checks that readings whose answer was lost are counted once. The
// server stores each batch and drops its first answer.
func TestLostAnswers(t *testing.T) {
	stored, seen := map[string]bool{}, map[string]bool{}
	client, made := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		var readings []jsontext.Value
		if err := json.Unmarshal(body, &readings); err != nil {
			t.Errorf("parse request: %v", err)
		}
		var answer transfer.Answer
		for _, reading := range readings {
			if stored[string(reading)] {
				answer.Duplicate++
			} else {
				stored[string(reading)] = true
				answer.Stored++
			}
		}
		if !seen[string(body)] {
			seen[string(body)] = true
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"stored":%d,"duplicate":%d}`, answer.Stored, answer.Duplicate)
	})
	var steps []int
	sum, err := transfer.Upload(t.Context(), client, open(t, head+rows(5)), transfer.UploadOptions{
		Batch:      2,
		OnProgress: func(s transfer.Summary) { steps = append(steps, s.Sent) },
	})
	want := transfer.Summary{Sent: 5, Duplicate: 5, Values: 10, Rows: 5}
	if sum != want || err != nil {
		t.Errorf("got %+v, error %v, want %+v", sum, err, want)
	}
	if len(stored) != 5 || len(*made) != 3 || !reflect.DeepEqual(steps, []int{2, 4, 5}) {
		t.Errorf("got %d stored, %d waits, progress %v, want 5, 3, [2 4 5]", len(stored), len(*made), steps)
	}
}

// TestRefusals checks the line numbers of rejected readings and of invalid rows.
func TestRefusals(t *testing.T) {
	client, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMultiStatus)
		io.WriteString(w, `{"stored":1,"duplicate":1,"rejected":[{"index":1,"field":"spo2_pct","reason":"conflict"}]}`)
	})
	var refusals []transfer.Refusal
	text := head + row + "no time,w-1,61,97\n" + "2026-01-01T00:00:01Z,w-1,61,\n" + "2026-01-01T00:00:02Z,w-1,,\n" +
		"2026-01-01T00:00:03Z,w-1,0,97\n"
	sum, err := transfer.Upload(t.Context(), client, open(t, text), transfer.UploadOptions{
		OnRefused: func(r transfer.Refusal) { refusals = append(refusals, r) },
	})
	if sum.Rows != sum.Stored+sum.Duplicate+sum.Rejected+sum.Failed+sum.NoSign {
		t.Errorf("the counts do not add up to the rows: %+v", sum)
	}
	want := transfer.Summary{Sent: 3, Stored: 1, Duplicate: 1, Rejected: 2, Values: 3, Rows: 5, NoSign: 1, Zeros: 1}
	if sum != want || err != nil {
		t.Errorf("got %+v, error %v, want %+v", sum, err, want)
	}
	if len(refusals) != 2 || refusals[0].Line != 3 || refusals[0].Field != "time" || refusals[0].Reason == "" ||
		refusals[1].Line != 4 || refusals[1].Field != "spo2_pct" || refusals[1].Reason != "conflict" ||
		refusals[1].Row != nil {
		t.Errorf("got refusals %+v, want line 3 and line 4", refusals)
	}
}

// TestWrongAnswers checks that readings with an inconsistent answer are counted as
// failed and are not retried.
func TestWrongAnswers(t *testing.T) {
	const count, index, garbage = "account for every reading", "not ascending positions of the batch",
		"does not respond like Pulsegate"
	for _, c := range []struct{ answer, want string }{
		{`{"stored":1,"duplicate":0,"rejected":[]}`, count},
		{`{"stored":2,"duplicate":1,"rejected":[]}`, count},
		{`{"stored":-1,"duplicate":3,"rejected":[]}`, count},
		{`{"stored":3,"duplicate":-1,"rejected":[]}`, count},
		{`{"stored":9223372036854775807,"duplicate":9223372036854775807,"rejected":[{"index":0,"field":"","reason":"x"},` +
			`{"index":1,"field":"","reason":"x"}]}`, count},
		{`{}`, garbage},
		{`null`, garbage},
		{`{"stored":2}`, garbage},
		{`{"stored":1,"duplicate":0,"rejected":[{"index":0,"reason":"x"}]}`, "without index, field or reason"},
		{`{"stored":1,"duplicate":0,"rejected":[{"index":2,"field":"","reason":"x"}]}`, index},
		{`{"stored":1,"duplicate":0,"rejected":[{"index":-1,"field":"","reason":"x"}]}`, index},
		{`{"stored":0,"duplicate":0,"rejected":[{"index":1,"field":"","reason":"x"},{"index":1,"field":"","reason":"x"}]}`,
			index},
		{``, garbage},
		{`<html>`, garbage},
		{`{"stored":2,"duplicate":0,"rejected":[]`, garbage},
		{`{"stored":2.5}`, garbage},
		{`[]`, garbage},
		{strings.Repeat(" ", transfer.MaxAnswerBytes) + `{"stored":2}`, "longer than 8388608 bytes"},
	} {
		name := c.answer[:min(len(c.answer), 60)]
		tries := 0
		client, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			tries++
			io.WriteString(w, c.answer)
		})
		sum, err := transfer.Upload(t.Context(), client, open(t, head+rows(4)), transfer.UploadOptions{
			Batch:     2,
			OnRefused: func(r transfer.Refusal) { t.Errorf("%s: got refusal %+v", name, r) },
		})
		// Only the first batch was read.
		if want := (transfer.Summary{Sent: 2, Failed: 2, Rows: 2}); sum != want || tries != 1 {
			t.Errorf("%s: got %+v after %d tries, want %+v after 1", name, sum, tries, want)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

// Devices come page by page, up to a limit, and a server that repeats a page is an error.
func TestDevices(t *testing.T) {
	page := func(next string, names ...string) string {
		var devices []string
		for _, name := range names {
			devices = append(devices,
				fmt.Sprintf(
					`{"device":%q,"time":"2026-11-21T10:00:00Z","latest":{"spo2_pct":{"value":97.50,"time":"2026-11-21T10:00:00Z",`+
						`"utc_offset_minutes":0,"flags":["low"]}}}`, name))
		}
		return fmt.Sprintf(`{"devices":[%s],"next_cursor":%q,"later":"member"}`, strings.Join(devices, ","), next)
	}
	for _, tt := range []struct {
		name    string
		limit   int
		second  string
		want    string
		wantErr string
	}{
		{"all", 0, page("", "c"), "[a b] [c]", ""},
		{"limit", 2, "", "[a b]", ""},
		{"limit beyond the end", 5, page("", "c"), "[a b] [c]", ""},
		{"repeated page", 0, page("x", "a", "b"), "[a b] [a b]", "repeats a page"},
		{"not JSON", 0, "<html>", "[a b]", "does not respond like Pulsegate"},
		{"another document", 0, "{}", "[a b]", "does not respond like Pulsegate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("cursor") == "" {
					_, _ = io.WriteString(w, page("x", "a", "b"))
					return
				}
				_, _ = io.WriteString(w, tt.second)
			})
			var got []string
			err := client.Devices(t.Context(), tt.limit, func(page []transfer.Device) error {
				var names []string
				for _, d := range page {
					names = append(names, d.Name)
					if latest := d.Latest["spo2_pct"]; latest.Value.String() != "97.50" || len(latest.Flags) != 1 ||
						latest.UTCOffset == nil || *latest.UTCOffset != 0 || latest.Time.IsZero() || d.Time.IsZero() {
						t.Errorf("%s: %+v", d.Name, d)
					}
				}
				got = append(got, fmt.Sprint(names))
				return nil
			})
			if strings.Join(got, " ") != tt.want || (err == nil) != (tt.wantErr == "") ||
				err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("got %v, %v; want %s and error %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}
