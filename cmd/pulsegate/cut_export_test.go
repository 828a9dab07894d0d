package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A bad proxy sends what it has received as a whole answer, even if the server's connection was lost. It speaks one
// version of HTTP to the server. If kill is not nil, it calls that after 1000 bytes of a body.
type badProxy struct {
	version, upstream string
	kill              func()
}

func (p *badProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := net.Dial("tcp", p.upstream)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s %s\r\nHost: localhost\r\nConnection: close\r\n\r\n", r.URL.RequestURI(), p.version)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	if p.kill == nil {
		_, _ = io.Copy(w, resp.Body)
		return
	}
	_, _ = io.CopyN(w, resp.Body, 1000)
	p.kill()
}

// An export that is cut off is an error, whatever stands between, and leaves no file.
func TestCutExport(t *testing.T) {
	t.Parallel()
	bin, dir := program(t), t.TempDir()
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, `{"device":"d","time":%d,"heart_rate_bpm":%d}`+"\n", 1_700_000_000_000+i*1000, 50+i%90)
	}
	export := func(proxy *badProxy, what, format, out string) (int, string) {
		srv := httptest.NewServer(proxy)
		defer srv.Close()
		cmd := exec.Command(bin, "export", "--target", srv.URL, what, "--format", format, "--out", out)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	for _, tt := range []struct{ what, format string }{
		{"--device=d", "ndjson"}, {"--device=d", "csv"}, {"--device=d", "parquet"}, {"--device=d", "omh"},
		{"--all", "ndjson"}, {"--all", "csv"}, {"--all", "parquet"},
	} {
		p := start(t, bin, filepath.Join(dir, "data"))
		if resp, text := fetch(t, http.MethodPost, p.url("/v1/readings"), lines.String()); resp.StatusCode != 200 {
			t.Fatal(resp.Status, text)
		}
		out := filepath.Join(dir, "out"+tt.what+"."+tt.format)
		if code, text := export(&badProxy{"HTTP/1.1", p.addr, nil}, tt.what, tt.format, out); code != 0 {
			t.Errorf("%s: a whole export ends with %d: %s", tt, code, text)
		}
		path := "/v1/devices/d/readings?flags=false&format="
		if tt.what == "--all" {
			path = "/v1/changes?format="
		}
		_, want := fetch(t, http.MethodGet, p.url(path+tt.format), "")
		if got, err := os.ReadFile(out); err != nil || !sameExport(got, want) {
			t.Errorf("%s: a whole export has %d bytes, %v; want %d", tt, len(got), err, len(want))
		}
		for _, bad := range []struct {
			version string
			kill    func()
			want    string
		}{
			{"HTTP/1.0", nil, "proxy_http_version 1.1"},
			{"HTTP/1.1", p.kill, "the answer was cut off before its end"},
		} {
			if tt.what == "--all" && tt.format == "ndjson" { // it is asked for as JSON, whose text shows its end
				if bad.kill == nil {
					continue
				}
				bad.want = "the target does not respond like Pulsegate"
			}
			cut := filepath.Join(dir, "cut")
			code, text := export(&badProxy{bad.version, p.addr, bad.kill}, tt.what, tt.format, cut)
			if code == 0 || !strings.Contains(text, bad.want) {
				t.Errorf("%s, %s: exit code %d, %q, want %q", tt, bad.version, code, text, bad.want)
			}
			if _, err := os.Stat(cut); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, %s: a file is left: %v", tt, bad.version, err)
			}
		}
	}
}

// sameExport reports whether an export has the text of an answer, but for ids of copies and, in lines, the last one. Of
// a file of Parquet with ids, which it may compress, it compares the ends.
func sameExport(got []byte, answer string) bool {
	if strings.HasPrefix(answer, "PAR1") && strings.Contains(answer, "begin") {
		return bytes.HasPrefix(got, []byte("PAR1")) && bytes.HasSuffix(got, []byte("PAR1"))
	}
	id := regexp.MustCompile("[0-9a-f]{13,16}")
	if i := strings.LastIndex(answer, `{"next":`); i >= 0 {
		answer = answer[:i]
	}
	return id.ReplaceAllString(string(got), "") == id.ReplaceAllString(answer, "")
}
