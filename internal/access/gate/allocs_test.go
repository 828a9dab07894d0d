//go:build !race

package gate_test

import (
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
)

// Whoever comes, to decide about him does not allocate, and neither does what
// stands between net/http and the gate.
func TestEnterAllocates(t *testing.T) {
	f := newFixture(t)
	device := name(t, "ppg-1")
	for _, tt := range visits(t, f) {
		r := &http.Request{Header: http.Header{}, RemoteAddr: "192.0.2.7:4711", TLS: tt.tls}
		if tt.auth != "" {
			r.Header.Set("Authorization", tt.auth)
		}
		text := []byte(tt.auth)
		at := tt.at(f)
		got := testing.AllocsPerRun(100, func() {
			pass, _, _ := tt.gate.Enter(gate.VisitorOf(r), tt.right, at)
			pass.Covers(&device)
			pass.Charge(1, at)
			if tt.want == gate.Passed {
				tt.gate.Contradict(&pass, at)
				tt.gate.Agreed(&pass, at)
			}
			tt.gate.Enter(gate.Visitor{Bytes: text, TLS: tt.tls, Peer: peer{}}, tt.right, at)
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, got)
		}
	}
}
