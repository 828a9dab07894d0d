package query_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Over HTTP/1.0, the end of an answer without a length is that of the connection. Only JSON, whose text shows its end,
// is answered there.
func TestOldHTTP(t *testing.T) {
	var lines []string
	for i := range 3000 { // more than net/http sends with a length
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, 1000+i*1000))
	}
	srv := serve(t, fill(t, lines...))
	for _, tt := range []struct {
		method, path, accept string
		want                 int
	}{
		{"GET", "readings?format=ndjson", "", 426},
		{"GET", "readings?format=ndjson&limit=1", "", 426},
		{"HEAD", "readings?format=ndjson", "", 426},
		{"GET", "readings?format=csv", "", 426},
		{"GET", "readings", "text/csv", 426},
		{"GET", "readings?format=parquet", "", 426},
		{"GET", "readings?format=omh", "", 426},
		{"GET", "aggregates?step=1s&format=ndjson", "", 426},
		{"GET", "aggregates?step=1s&format=csv", "", 426},
		{"GET", "readings", "", 200},
		{"GET", "aggregates?step=1s", "", 200},
	} {
		for version, want := range map[string]int{"HTTP/1.0": tt.want, "HTTP/1.1": 200} {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			try(t, err)
			header := ""
			if tt.accept != "" {
				header = "Accept: " + tt.accept + "\r\n"
			}
			_, err = io.WriteString(conn, tt.method+" /v1/devices/a/"+tt.path+" "+version+"\r\nHost: x\r\n"+header+"\r\n")
			try(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: tt.method})
			try(t, err)
			text, err := io.ReadAll(resp.Body)
			try(t, err)
			if resp.StatusCode != want {
				t.Errorf("%s %s in %s: %s", tt.method, tt.path, version, resp.Status)
			}
			if want == 426 && (resp.Header.Get("Upgrade") != "HTTP/1.1" ||
				tt.method == "GET" && !strings.Contains(string(text), "proxy_http_version 1.1")) {
				t.Errorf("%s %s: %v %s", tt.method, tt.path, resp.Header, text)
			}
			if want == 200 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && tt.method == "GET" &&
				!strings.HasSuffix(string(text), "}\n") {
				t.Errorf("%s %s in %s: the end is not shown", tt.method, tt.path, version)
			}
			conn.Close()
		}
	}
}

// An answer ends with what the client has chosen, and is otherwise as without that.
func TestEnd(t *testing.T) {
	srv := serve(t, fill(t, one("a"), one("b")))
	for _, path := range []string{
		"readings?format=ndjson", "readings?format=csv&limit=1", "readings?format=parquet", "readings?format=omh",
		"readings?format=ndjson&from=now",
		"aggregates?step=1d&format=ndjson", "aggregates?step=1d&format=csv",
	} {
		_, whole := get(t, srv, "/v1/devices/a/"+path)
		resp, text := get(t, srv, "/v1/devices/a/"+path+"&end=7f3a-end")
		if resp.StatusCode != 200 || text != whole+"7f3a-end" {
			t.Errorf("%s: %s, %q", path, resp.Status, text)
		}
	}
	for _, bad := range []string{"readings?end=x", "aggregates?step=1d&end=x", "readings?format=csv&end=x%0ay"} {
		if resp, text := get(t, srv, "/v1/devices/a/"+bad); resp.StatusCode != 400 ||
			!strings.Contains(text, `"field":"end"`) {
			t.Errorf("%s: %s %s", bad, resp.Status, text)
		}
	}
}
