package sim_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/client/sim"
)

// The judge accepts all problems of package problem, except those that only a GET, a
// wrong URL or the admin listener can cause.
func TestProblems(t *testing.T) {
	set := problem.New()
	not := []string{set.BadParameter.Type(), set.NotFound.Type(), set.UnknownDevice.Type(), set.MethodNotAllowed.Type(),
		set.NotAcceptable.Type(), set.UnsupportedType.Type(), set.ReadFailed.Type(),
		set.ErasureUnfinished.Type(), set.Busy.Type(), set.Assigned.Type(), set.NotAssigned.Type(), set.OldHTTP.Type(),
		set.Unreadable.Type(), set.CursorUnknown.Type(), set.NotKept.Type()}
	known := sim.WriteProblems()
	for _, p := range set.All() {
		status, ok := known[p.Type()]
		delete(known, p.Type())
		if expected := !slices.Contains(not, p.Type()); ok != expected {
			t.Errorf("type %s is accepted: %v, want %v", p.Type(), ok, expected)
		} else if ok && status != p.Status() {
			t.Errorf("type %s has status %d, want %d", p.Type(), status, p.Status())
		}
	}
	for name := range known {
		t.Errorf("type %s is accepted, but no server sends it", name)
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	answer := func(status int, fields, body string) string {
		return fmt.Sprintf("HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s", status, fields, len(body), body)
	}
	document := func(status int, name, fields string) string {
		return answer(status, "Content-Type: application/problem+json\r\n"+fields,
			`{"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#`+name+`","title":"x","status":400}`)
	}
	for _, tt := range []struct {
		name   string
		text   string
		single bool
		n      int
		want   sim.Judgement
	}{
		{"stored", answer(200, "", `{"status":"stored"}`), true, 1, sim.Judgement{Verdict: "accepted", Stored: 1}},
		{"duplicate", answer(200, "", `{"status":"duplicate"}`), true, 1, sim.Judgement{Verdict: "accepted", Duplicate: 1}},
		{"stored, other spelling", answer(200, "", "{ \"status\" : \"stored\" }\n"), true, 1,
			sim.Judgement{Verdict: "accepted", Stored: 1}},
		{"batch", answer(200, "", `{"stored":3,"duplicate":2}`), false, 5,
			sim.Judgement{Verdict: "accepted", Stored: 3, Duplicate: 2}},
		{"batch, other spelling", answer(200, "", `{"duplicate": 2, "stored": 3}`), false, 5,
			sim.Judgement{Verdict: "accepted", Stored: 3, Duplicate: 2}},
		{"mixed",
			answer(207, "",
				`{"stored":1,"duplicate":1,"rejected":[{"index":0,"field":"time","reason":"x"},{"index":3,"field":"",`+
					`"reason":"x"}]}`), false, 4,
			sim.Judgement{Verdict: "accepted", Stored: 1, Duplicate: 1, Rejected: []int{0, 3}}},
		{"overloaded", document(503, "overloaded", "Retry-After: 2\r\n"), true, 1,
			sim.Judgement{Verdict: "refused now", Problem: "overloaded", RetryAfter: 2 * time.Second}},
		{"until a date", document(503, "draining", "Retry-After: Sat, 21 Nov 2026 10:00:07 GMT\r\n"), true, 1,
			sim.Judgement{Verdict: "refused now", Problem: "draining", RetryAfter: 7 * time.Second}},
		{"limited", document(429, "too-many-readings", "Retry-After: 1\r\n"), false, 9,
			sim.Judgement{Verdict: "refused now", Problem: "too-many-readings", RetryAfter: time.Second}},
		{"conflict", document(409, "conflict", ""), true, 1, sim.Judgement{Verdict: "refused whole", Problem: "conflict"}},
		{"no token", document(401, "unauthorized", ""), true, 1,
			sim.Judgement{Verdict: "refused whole", Problem: "unauthorized"}},
		{"outcome unknown", document(500, "outcome-unknown", ""), true, 1,
			sim.Judgement{Verdict: "uncertain", Problem: "outcome-unknown"}},
		{"timeout", document(408, "timeout", ""), true, 1, sim.Judgement{Verdict: "uncertain", Problem: "timeout"}},

		{"single answer to a batch", answer(200, "", `{"status":"stored"}`), false, 2,
			sim.Judgement{Verdict: "undocumented"}},
		{"batch answer to a single reading", answer(200, "", `{"stored":1,"duplicate":0}`), true, 1,
			sim.Judgement{Verdict: "undocumented"}},
		{"another 200", answer(200, "", `ok`), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"too few", answer(200, "", `{"stored":3,"duplicate":1}`), false, 5, sim.Judgement{Verdict: "undocumented"}},
		{"negative", answer(200, "", `{"stored":6,"duplicate":-1}`), false, 5, sim.Judgement{Verdict: "undocumented"}},
		{"207 without a rejected reading", answer(207, "", `{"stored":3,"duplicate":2}`), false, 5,
			sim.Judgement{Verdict: "undocumented"}},
		{"rejected with 200",
			answer(200, "", `{"stored":0,"duplicate":0,"rejected":[{"index":0,"field":"time","reason":"x"}]}`), false, 1,
			sim.Judgement{Verdict: "undocumented"}},
		{"rejected twice",
			answer(207, "",
				`{"stored":0,"duplicate":0,"rejected":[{"index":0,"field":"a","reason":"x"},{"index":0,"field":"a",`+
					`"reason":"x"}]}`), false, 2, sim.Judgement{Verdict: "undocumented"}},
		{"rejected beyond the end",
			answer(207, "", `{"stored":0,"duplicate":0,"rejected":[{"index":1,"field":"a","reason":"x"}]}`), false, 1,
			sim.Judgement{Verdict: "undocumented"}},
		{"rejected without a reason", answer(207, "", `{"stored":0,"duplicate":0,"rejected":[{"index":0,"field":"a"}]}`),
			false, 1, sim.Judgement{Verdict: "undocumented"}},
		{"created", answer(201, "", `{"status":"stored"}`), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"moved", answer(302, "Location: /\r\n", ``), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"503 without Retry-After", document(503, "overloaded", ""), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"503 of a proxy", answer(503, "Content-Type: text/html\r\nRetry-After: 1\r\n", "<html>"), true, 1,
			sim.Judgement{Verdict: "undocumented"}},
		{"a type with the status of another", document(400, "conflict", ""), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"a type of the read API", document(500, "read-failed", ""), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"not found", document(404, "not-found", ""), true, 1, sim.Judgement{Verdict: "undocumented"}},
		{"a foreign type", answer(400, "Content-Type: application/problem+json\r\n", `{"type":"about:blank"}`), true, 1,
			sim.Judgement{Verdict: "undocumented"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sim.Judge(tt.text, tt.single, tt.n, now)
			try(t, err)
			if got.Verdict != tt.want.Verdict || got.Stored != tt.want.Stored || got.Duplicate != tt.want.Duplicate ||
				!slices.Equal(got.Rejected, tt.want.Rejected) || got.Problem != tt.want.Problem ||
				got.RetryAfter != tt.want.RetryAfter {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A report never quotes a server's text.
func TestFaultsQuoteNothing(t *testing.T) {
	got, err := sim.Judge("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret", true, 1, time.Now())
	if err != nil || strings.Contains(fmt.Sprint(got), "secret") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Only answers of InfluxDB's API are documented ones to lines. After 400 nothing is known to be stored, and 503 without
// a Retry-After means that the request was too slow.
func TestJudgeLines(t *testing.T) {
	for _, tt := range []struct {
		status       int
		fields, body string
		want         sim.Judgement
	}{
		{204, "", "", sim.Judgement{Verdict: "accepted", Stored: 7}},
		{200, "", "", sim.Judgement{Verdict: "undocumented"}},
		{400, "", `{"code":"invalid","message":"partial write: line 1: x; dropped=1"}`,
			sim.Judgement{Verdict: "refused whole", Problem: "invalid"}},
		{400, "", `{"error":"partial write: line 1: x; dropped=1"}`, sim.Judgement{Verdict: "undocumented"}},
		{400, "", `{"code":"72","message":"x"}`, sim.Judgement{Verdict: "undocumented"}},
		{401, "", `{"code":"unauthorized","message":"x"}`, sim.Judgement{Verdict: "refused whole", Problem: "unauthorized"}},
		{429, "Retry-After: 3\r\n", `{"code":"too many requests","message":"x"}`,
			sim.Judgement{Verdict: "refused now", Problem: "too many requests", RetryAfter: 3 * time.Second}},
		{500, "", `{"code":"internal error","message":"x"}`, sim.Judgement{Verdict: "uncertain", Problem: "internal error"}},
		{503, "Retry-After: 3\r\n", `{"code":"unavailable","message":"x"}`,
			sim.Judgement{Verdict: "refused now", Problem: "unavailable", RetryAfter: 3 * time.Second}},
		{503, "", `{"code":"unavailable","message":"x"}`, sim.Judgement{Verdict: "uncertain", Problem: "unavailable"}},
	} {
		length := fmt.Sprintf("Content-Length: %d\r\n", len(tt.body))
		if tt.status == 204 {
			length = ""
		}
		got, err := sim.JudgeLines(fmt.Sprintf("HTTP/1.1 %d X\r\n%s%s\r\n%s", tt.status, tt.fields, length, tt.body), 7)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%d %s: %+v, %v; want %+v", tt.status, tt.body, got, err, tt.want)
		}
	}
}
