package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pipeline sends n requests on one connection, as fast as they are accepted, and counts the
// answers by status.
func pipeline(t testing.TB, addr string, n int, request func(i int) string) map[int]int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	try(t, err)
	defer conn.Close()
	try(t, conn.SetDeadline(time.Now().Add(5*time.Minute)))
	sent := make(chan error, 1)
	go func() {
		out := bufio.NewWriterSize(conn, 64<<10)
		for i := range n {
			_, _ = out.WriteString(request(i)) // Flush reports the error
		}
		sent <- out.Flush()
	}()
	statuses := map[int]int{}
	in := bufio.NewReaderSize(conn, 64<<10)
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		statuses[resp.StatusCode]++
	}
	try(t, <-sent)
	return statuses
}

// postText returns a POST request with a body.
func postText(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func goodReading(i int) string {
	return postText("/v1/readings", fmt.Sprintf(`{"device":"d%d","time":%d,"spo2_pct":97.5}`, i%10, 1_000_000+i))
}

// Both lanes write the same lines to the access log. They contain templates and lengths, and
// nothing that was sent.
func TestAccessLog(t *testing.T) {
	for _, lane := range []string{"on", "off"} {
		t.Run("fast lane "+lane, func(t *testing.T) {
			p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--access-log=all", "--fast-lane="+lane)
			for _, request := range []string{
				postText("/v1/readings", `{"device":"secret","time":1000,"spo2_pct":97.5}`),
				postText("/v1/readings", `{"device":"secret","time":1000,"spo2_pct":97.5}`),
				postText("/v1/readings", `{"device":"secret","time":1000,"spo2_pct":0}`),
				postText("/v1/readings", `[{"device":"secret","time":2000,"spo2_pct":97.5}]`),
				postText("/v1/readings?token=secret", `secret`),
				"GET /v1/devices/secret HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n",
				"GET /v1/devices/secret?token=secret HTTP/1.1\r\nHost: localhost\r\n\r\n",
				"GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n",
				"SECRET /v1/readings HTTP/1.1\r\nHost: localhost\r\n\r\n",
				"GET /v1/devices/secret HTTP/1.1\r\nHost: secret.example\r\n\r\n",
				strings.Replace(postText("/v1/readings", `secret`), "localhost", "secret.example", 1),
			} {
				pipeline(t, p.addr, 1, func(int) string { return request })
			}
			p.stop()
			var got []string
			for line := range strings.Lines(p.stderr()) {
				if _, line, ok := strings.Cut(line, "level=INFO msg=request "); ok {
					got = append(got, regexp.MustCompile(`duration_ms=\d+(\.\d+)?(e-\d+)? `).ReplaceAllString(line, ""))
				}
			}
			want := []string{
				"method=POST route=/v1/readings status=200 answer_bytes=20\n",
				"method=POST route=/v1/readings status=200 answer_bytes=23\n",
				"method=POST route=/v1/readings status=422 answer_bytes=",
				"method=POST route=/v1/readings status=200 answer_bytes=27\n",
				"method=POST route=/v1/readings status=400 answer_bytes=",
				"method=GET route=/v1/devices/{device} status=200 answer_bytes=",
				"method=GET route=/v1/devices/{device} status=400 answer_bytes=",
				"method=GET route=unmatched status=404 answer_bytes=",
				"method=other route=unmatched status=405 answer_bytes=",
				"method=GET route=unmatched status=403 answer_bytes=",
				"method=POST route=unmatched status=403 answer_bytes=",
			}
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), p.stderr())
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) || strings.HasSuffix(got[i], "=0\n") {
					t.Errorf("line %d: got %q, want %q", i, got[i], want[i])
				}
			}
			if strings.Contains(strings.ToLower(p.stderr()), "secret") {
				t.Errorf("the log contains what was sent:\n%s", p.stderr())
			}
		})
	}
}
