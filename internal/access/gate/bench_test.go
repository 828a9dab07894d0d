package gate_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// BenchmarkAuthorize measures what a token costs a request, from the bytes of its
// header to the charge for one reading.
func BenchmarkAuthorize(b *testing.B) {
	f := newFixture(b)
	device := name(b, "ppg-1")
	for _, bb := range []struct {
		name string
		gate *gate.Gate
		auth string
	}{
		{"open", &gate.Gate{}, ""},
		{"token", &gate.Gate{Tokens: f.set}, f.write},
		{"token of some devices", &gate.Gate{Tokens: f.set}, f.read},
		{"refused", &gate.Gate{Tokens: f.set}, "Bearer x"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			right := token.Write
			if bb.auth == f.read {
				right = token.Read
			}
			v := gate.Credentials{Bytes: []byte(bb.auth)}
			b.ReportAllocs()
			for b.Loop() {
				access, _, _ := bb.gate.Authorize(v, right, now)
				access.Covers(&device)
				access.Allow(1, now)
			}
		})
	}
}
