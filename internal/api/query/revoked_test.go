package query_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/query"
)

// An export ends soon after its token is revoked, whether the client reads or blocks
// the server.
//
// Seen to fail with the mutant check-token-once.
func TestRevokedExport(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reads bool
	}{
		{"a client that reads", true},
		{"a client that does not read", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeyring(t)
			ended := make(chan struct{})
			srv := serveOptions(t, &endless{readings: 1 << 60},
				query.Options{Service: query.Service{Gate: k.gate, PieceTimeout: time.Hour}}, func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(ended)
						h.ServeHTTP(w, r)
					})
				})
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			try(t, err)
			defer conn.Close()
			try(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			if _, err := io.WriteString(conn,
				"GET /v1/devices/ppg-1/readings?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: "+k.ppg+"\r\n\r\n"); err !=
				nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, make([]byte, 100_000)); err != nil {
				t.Fatal(err)
			}
			k.Revoke(t, "ward-7")
			try(t, k.gate.Tokens.Reload())
			if tt.reads {
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("the export does not end: %v", err)
				}
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				conn.Close()
				t.Fatal("the export does not end")
			}
			if n := k.gate.Refused(audit.Unknown); n != 1 {
				t.Errorf("%d refusals counted, want 1", n)
			}
		})
	}
}
