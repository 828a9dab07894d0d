package server_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/porttest"
)

// Messages of HL7 v2, and publications that are too long for an event loop, are spans with a status and phases. No text
// of theirs is in a span.
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
		return publish(opt.MQTTAddr, "pulsegate/secret",
			"["+strings.Repeat(" ", 70_000)+`{"time":1763700000000,"spo2_pct":97}]`)
	}); err != nil {
		t.Fatal(err)
	}
	var spans []string
	for _, found := range regexp.MustCompile(`"kind":\d,"name":"([^"]+)"|status_code","value":\{"intValue":"(\d+)"`).
		FindAllStringSubmatch(exported.String(), -1) {
		spans = append(spans, found[1]+found[2])
	}
	const want = "ORU mllp 200 decode queue commit ORU mllp 422 decode PUBLISH mqtt 200 decode queue commit"
	if got := strings.Join(spans, " "); got != want || strings.Contains(exported.String(), "secret") {
		t.Errorf("got the spans %s, want %s, in\n%s", got, want, &exported)
	}
}
