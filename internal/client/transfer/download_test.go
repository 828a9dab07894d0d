package transfer_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

func TestDownload(t *testing.T) {
	want := strings.Repeat("line\n", 50_000) // several buffers
	for _, c := range []struct {
		sel  transfer.Selection
		want string // the request URI
	}{
		{transfer.Selection{Device: "w-1", Format: "csv"}, "/v1/devices/w-1/readings?flags=false&format=csv"},
		{
			transfer.Selection{Device: "a/b?c", From: "2026-01-01T00:00:00+01:00", To: "17", Format: "ndjson"},
			"/v1/devices/a%2Fb%3Fc/readings?flags=false&format=ndjson&from=2026-01-01T00%3A00%3A00%2B01%3A00&to=17",
		},
	} {
		client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked := r.URL.Query()
			end := asked.Get("end")
			asked.Del("end")
			r.URL.RawQuery = asked.Encode()
			if got := r.URL.RequestURI(); r.Method != http.MethodGet || got != c.want || len(end) < 26 {
				t.Errorf("got request %s %s with the end %q, want %s", r.Method, got, end, c.want)
			}
			io.WriteString(w, want+end)
		})
		var out bytes.Buffer
		if _, err := client.Download(t.Context(), &out, c.sel); err != nil || out.String() != want {
			t.Errorf("got %d bytes, error %v, want %d bytes", out.Len(), err, len(want))
		}
	}
}

// TestLeftOut checks that a download returns the signs that the server left out.
func TestLeftOut(t *testing.T) {
	client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Pulsegate-Left-Out")
		io.WriteString(w, "[]"+r.URL.Query().Get("end"))
		w.Header().Set("Pulsegate-Left-Out", "steps, hrv_ms")
	})
	if got, err := client.Download(t.Context(), io.Discard, transfer.Selection{Device: "w-1", Format: "omh"}); err !=
		nil || got != "steps, hrv_ms" {
		t.Errorf("left out %q, error %v", got, err)
	}
}

// TestConnectionLost checks that a download that is cut off at any byte is an error.
func TestConnectionLost(t *testing.T) {
	const endBytes = 26
	for _, form := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\nline\nline\nEND",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n5\r\nline\n\r\n1a\r\nEND\r\n0\r\n\r\n",
	} {
		whole := len(form) - len("END") + endBytes
		for cut := range whole + 1 {
			client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("hijack: %v", err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, strings.Replace(form, "END", r.URL.Query().Get("end"), 1)[:cut])
			})
			var out bytes.Buffer
			_, err := client.Download(t.Context(), &out, transfer.Selection{Device: "w-1", Format: "csv"})
			if cut == whole != (err == nil) || err == nil && out.String() != "line\nline\n" {
				t.Errorf("cut at byte %d of %q: got %q, error %v", cut, form, &out, err)
			}
			client.Close()
		}
	}
}

// TestCutBehindProxy checks that a download is an error if a proxy ends an answer that was cut off as if it were whole.
func TestCutBehindProxy(t *testing.T) {
	long := strings.Repeat("line\n", 50_000)
	for _, text := range []string{"", "line\n", long} {
		for _, missing := range []int{-1, 0, 1, 25, 26} { // bytes of the end, or more than the end
			var end string
			client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				end = r.URL.Query().Get("end")
				if missing < 0 {
					end += "\n"
				}
				io.WriteString(w, text+end[:len(end)-max(missing, 0)])
			})
			var out bytes.Buffer
			_, err := client.Download(t.Context(), &out, transfer.Selection{Device: "w-1", Format: "parquet"})
			if missing == 0 != (err == nil) || err == nil && out.String() != text {
				t.Errorf("%d bytes missing after %d: got %d bytes, error %v", missing, len(text), out.Len(), err)
			}
			err = client.Readings(t.Context(), transfer.Selection{Device: "w-1"}, func([]byte) error { return nil })
			if missing == 0 != (err == nil) {
				t.Errorf("%d bytes missing after %d: readings with error %v", missing, len(text), err)
			}
		}
	}
}

// TestNoEnd checks that a response whose end is not distinguishable from a broken
// connection is an error.
func TestNoEnd(t *testing.T) {
	for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
		synctest.Test(t, func(t *testing.T) {
			client, _, stop := pipe(t, version+" 200 OK\r\n\r\nline\n")
			defer stop()
			var out bytes.Buffer
			_, err := client.Download(t.Context(), &out, transfer.Selection{Device: "w-1", Format: "csv"})
			if err == nil || !strings.Contains(err.Error(), "neither a length nor chunked encoding") || out.Len() != 0 {
				t.Errorf("%s: got %q, error %v, want an error that the answer has no end", version, &out, err)
			}
		})
	}
}

// TestSilentExport checks that a download fails when the server stops sending before
// its response, in the header or in the body.
func TestSilentExport(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nline\n"
	for _, cut := range []int{0, 20, len(answer) - 5, len(answer)} {
		synctest.Test(t, func(t *testing.T) {
			client, _, stop := pipe(t, answer[:cut])
			defer stop()
			start := time.Now()
			_, err := client.Download(t.Context(), io.Discard, transfer.Selection{Device: "w-1", Format: "csv"})
			if err == nil || !strings.Contains(err.Error(), "the server sent nothing for 1m0s") {
				t.Errorf("silent after %d bytes: got error %v, want an idle timeout", cut, err)
			}
			if took := time.Since(start); took != transfer.IdleTimeout {
				t.Errorf("silent after %d bytes: took %v, want %v", cut, took, transfer.IdleTimeout)
			}
		})
	}
}

// A failingWriter fails every write.
type failingWriter struct{}

var errFull = errors.New("full")

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

func TestFullWriter(t *testing.T) {
	client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "line\n"+r.URL.Query().Get("end"))
	})
	sel := transfer.Selection{Device: "w-1", Format: "csv"}
	if _, err := client.Download(t.Context(), failingWriter{}, sel); !errors.Is(err, errFull) {
		t.Errorf("got error %v, want that of the writer", err)
	}
}
