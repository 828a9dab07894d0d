package server_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/porttest"
)

// A live stream is not traced for its length, which is the client's choice.
//
// Seen to fail when it was.
func TestStreamIsNotSlow(t *testing.T) {
	var streams atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // a server that ends may break it off
		if bytes.Contains(text, []byte("/v1/live")) {
			streams.Add(1)
		}
	}))
	defer collector.Close()
	opt := options(t)
	opt.OTLPEndpoint, opt.TraceSlow, opt.TraceSample = collector.URL, time.Nanosecond, 0
	if _, err := run(t, opt, func(url string) error {
		resp, err := http.Get(url + "/v1/live")
		if err != nil {
			return err
		}
		_, err = resp.Body.Read(make([]byte, 1))
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := streams.Load(); n != 0 {
		t.Errorf("%d exports have a stream", n)
	}
}

// Messages of HL7 v2, and publications that are too long for an event loop, are spans with a status and phases. No text of
// theirs is in a span.
func TestMessageTraces(t *testing.T) {
	var mu sync.Mutex
	var exported strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&exported, r.Body) // the test fails if it is cut off
	}))
	defer collector.Close()
	opt := options(t)
	opt.MQTTAddr, opt.MLLPAddr = porttest.Addr(t), porttest.Addr(t)
	opt.OTLPEndpoint, opt.TraceSample = collector.URL, 1
	if _, err := run(t, opt, func(string) error {
		conn, err := net.Dial("tcp", opt.MLLPAddr)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, bpm := range []int{72, 0} {
			if _, err := exchange(conn, hl7Message("secret", "", "secret", "20261121100000", bpm)); err != nil {
				return err
			}
		}
		return publish(opt.MQTTAddr, "pulsegate/secret", "["+strings.Repeat(" ", 70_000)+`{"time":1763700000000,"spo2_pct":97}]`)
	}); err != nil {
		t.Fatal(err)
	}
	var spans []string
	for _, found := range regexp.MustCompile(`"kind":\d,"name":"([^"]+)"|status_code","value":\{"intValue":"(\d+)"`).FindAllStringSubmatch(exported.String(), -1) {
		spans = append(spans, found[1]+found[2])
	}
	const want = "ORU mllp 200 decode queue commit ORU mllp 422 decode PUBLISH mqtt 200 decode queue commit"
	if got := strings.Join(spans, " "); got != want || strings.Contains(exported.String(), "secret") {
		t.Errorf("got the spans %s, want %s, in\n%s", got, want, &exported)
	}
}
