//go:build !race

package gate_test

import (
	"math"
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
)

// Authorize does not allocate for any verdict, and neither does the code between
// net/http and the gate.
func TestAuthorizeAllocates(t *testing.T) {
	f := newFixture(t)
	device := name(t, "ppg-1")
	for _, tt := range visits(t, f) {
		r := &http.Request{Header: http.Header{}, RemoteAddr: "192.0.2.7:4711", TLS: tt.tls}
		if tt.auth != "" {
			r.Header.Set("Authorization", tt.auth)
		}
		text := []byte(tt.auth)
		at := tt.at(f)
		visit := func() {
			access, _, _ := tt.gate.Authorize(gate.CredentialsOf(r), tt.right, at)
			access.Covers(&device)
			access.Allow(1, at)
			if tt.want == gate.Allowed {
				tt.gate.TakeContradiction(&access, at)
				tt.gate.ReturnContradiction(&access, at)
			}
			tt.gate.Authorize(gate.Credentials{Bytes: text, TLS: tt.tls, Peer: peer{}}, tt.right, at)
		}
		// The goroutine of the audit log, which has records to write, allocates too.
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(100, visit))
		}
		if least != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, least)
		}
	}
}
