package server

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
)

func TestURL(t *testing.T) {
	for _, tt := range []struct {
		addr string
		tls  bool
		want string
	}{
		{"127.0.0.1:8080", false, "http://127.0.0.1:8080"},
		{"192.0.2.7:443", true, "https://192.0.2.7:443"},
		{"0.0.0.0:8080", false, "http://localhost:8080"},
		{"[::]:8080", false, "http://localhost:8080"},
		{"[::1]:8080", false, "http://[::1]:8080"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		s := &listeners{access: &access{}, publicAddr: addr}
		if tt.tls {
			s.access.tls = &tlsfiles.Files{}
		}
		if got := s.url(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.addr, got, tt.want)
		}
	}
}

// A line for scripts is written at every level, in the format of the log. Values with spaces
// are quoted.
func TestPrint(t *testing.T) {
	for format, want := range map[string]string{
		"text": "level=INFO msg=ready url=http://127.0.0.1:1 data=\"/a b\"\n",
		"json": `"level":"INFO","msg":"ready","url":"http://127.0.0.1:1","data":"/a b"}` + "\n",
	} {
		var out strings.Builder
		l, err := OpenLog(&out, &LogOptions{LogLevel: slog.LevelError, LogFormat: format, LogBudget: 1, LogBudgetBytes: 1 << 20, AccessLogBudget: 1, AccessLogSample: 1})
		if err != nil {
			t.Fatal(err)
		}
		l.print("ready", slog.String("url", "http://127.0.0.1:1"), slog.String("data", "/a b"))
		l.Close()
		if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %q, want a line that ends with %q", format, got, want)
		}
	}
}

func TestAddrHint(t *testing.T) {
	for addr, want := range map[string]string{
		"8080":        "; did you mean 127.0.0.1:8080?",
		"99999":       "",
		"localhost":   "; did you mean localhost:8080?",
		"a:b:c":       "",
		"":            "",
		"[::1":        "",
		"127.0.0.1:1": "",
	} {
		if got := AddrHint(addr); got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
}
