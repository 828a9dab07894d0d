//go:build !race

package gate_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// A JWT that was verified before costs no allocation.
func TestAuthorizeJWTAllocates(t *testing.T) {
	h := newHouse(t)
	text := h.of("bed-7", nil)
	v := gate.Credentials{Authorization: text}
	if _, verdict, _ := h.Authorize(v, token.Write, time.Now()); verdict != gate.Allowed {
		t.Fatal(verdict)
	}
	at := time.Now()
	for _, v := range []gate.Credentials{v, {Bytes: []byte(text), Quick: true}} {
		if n := testing.AllocsPerRun(100, func() { h.Authorize(v, token.Write, at) }); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	}
}

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
