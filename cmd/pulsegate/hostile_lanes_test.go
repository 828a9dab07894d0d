package main_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The lanes differ only in what docs/limits.md lists under "Framing", and not in what they store: a
// connection ends one answer earlier or later, or with a 400. Which outcome occurs depends on how
// the bytes arrive.
func TestLaneDifferences(t *testing.T) {
	t.Parallel()
	const post = "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
	const chunked = "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n" +
		"{}\r\n0\r\n\r\n"
	long := func(n int) string {
		return fmt.Sprintf("GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", n))
	}
	lanes(t, []string{"--read-timeout=2s"}, func(t *testing.T, p *process) {
		for _, tt := range []struct {
			name, stream string
			want         []string
		}{
			{"a length, then chunks", post + chunked + post, []string{"422 422 end"}},
			{"one byte after a request", post + "G", []string{"422 end", "422 400 end"}},
			{"three bytes after a request", post + "GET", []string{"422 end", "422 400 end"}},
			{"three bytes of the shape after a request", post + "POS", []string{"422 end", "422 400 end"}},
			{"a header of 20,300 bytes after a request", post + long(20_300), []string{"422 200 end", "422 431 end"}},
			{"a header of 24,600 bytes after a request", post + long(24_600), []string{"422 431 end"}},
		} {
			if got := exchange(t, p.addr, tt.stream); !slices.Contains(tt.want, got) {
				t.Errorf("%s: %s, want one of %q", tt.name, got, tt.want)
			} else {
				t.Logf("%s: %s", tt.name, got)
			}
		}
		if got := devices(t, p); got != "" {
			t.Errorf("stored: %s", got)
		}
	})
}
