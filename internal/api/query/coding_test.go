package query_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// decodedBody returns a body without its content coding.
func decodedBody(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var in io.Reader = bytes.NewReader(body)
	switch coding {
	case "gzip":
		z, err := gzip.NewReader(in)
		try(t, err)
		in = z
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(8<<20)) // RFC 9659
		try(t, err)
		defer z.Close()
		in = z
	}
	text, err := io.ReadAll(in)
	try(t, err)
	return text
}

// An export has the content coding that the client prefers, and the same text in each.
func TestCodings(t *testing.T) {
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":%d}`, 1000+i*1000, 90+i%10))
	}
	srv := serve(t, fill(t, lines...))
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	ask := func(method, path, accept string) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequest(method, srv.URL+"/v1/devices/a/"+path, nil)
		try(t, err)
		if accept != "" {
			req.Header.Set("Accept-Encoding", accept)
		}
		resp, err := client.Do(req)
		try(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		try(t, err)
		return resp, body
	}
	for _, path := range []string{
		"readings?format=csv", "readings?format=ndjson&limit=4000", "readings?format=omh", "readings?format=csv&from=now",
		"readings?format=ndjson&from=now&end=x",
		"aggregates?step=1m&format=csv", "aggregates?step=1m&format=ndjson&end=x",
		"readings", "readings?format=parquet", "aggregates?step=1m",
	} {
		plain, want := ask("GET", path, "")
		text := plain.Header.Get("Content-Type") != "application/vnd.apache.parquet" && strings.Contains(path, "format=")
		for accept, coding := range map[string]string{
			"": "", "identity": "", "br": "", "*": "", "gzip": "gzip", "GZIP": "gzip", "zstd": "zstd",
			"gzip, deflate, br, zstd": "zstd",
			"gzip;q=1, zstd;q=0.5":    "gzip", "zstd;q=0": "", "zstd ; q=0.0 , gzip;q=0.1": "gzip", "gzip;q=nonsense": "",
			"gzip;q=NaN": "",
		} {
			if !text {
				coding = ""
			}
			resp, body := ask("GET", path, accept)
			if got := resp.Header.Get("Content-Encoding"); got != coding {
				t.Errorf("%s for %q: Content-Encoding %q, want %q", path, accept, got, coding)
			}
			if got := decodedBody(t, coding, body); !bytes.Equal(got, want) {
				t.Errorf("%s for %q: %d bytes, want %d", path, accept, len(got), len(want))
			}
			if coding != "" && len(want) > 100_000 && len(body) > len(want)/4 {
				t.Errorf("%s for %q: %d bytes of %d", path, accept, len(body), len(want))
			}
			if got := resp.Trailer.Get("Pulsegate-Next-Cursor"); got != plain.Trailer.Get("Pulsegate-Next-Cursor") {
				t.Errorf("%s for %q: cursor %q", path, accept, got)
			}
			if varies := strings.Contains(strings.Join(resp.Header["Vary"], ","), "Accept-Encoding"); varies != text {
				t.Errorf("%s: Vary %q", path, resp.Header["Vary"])
			}
			if head, _ := ask("HEAD", path, accept); head.Header.Get("Content-Encoding") != coding {
				t.Errorf("HEAD %s for %q: Content-Encoding %q, want %q", path, accept, head.Header.Get("Content-Encoding"), coding)
			}
		}
	}
	if resp, _ := ask("GET", "readings?format=csv&from=nonsense", "gzip"); resp.StatusCode != 400 ||
		resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%s with Content-Encoding %q", resp.Status, resp.Header.Get("Content-Encoding"))
	}
}
