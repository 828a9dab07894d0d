package gate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
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

// BenchmarkAuthorizeJWT measures what a JWT that was verified before costs beside a token, in turns in one run:
// JWT/token is the quotient. The tokens have the size of those of Keycloak.
func BenchmarkAuthorizeJWT(b *testing.B) {
	f := newFixture(b)
	h := newHouse(b)
	h.Tokens = f.set
	static := gate.Credentials{Bytes: []byte(f.write), Quick: true}
	jwt := gate.Credentials{Bytes: []byte(h.of("bed-7", oidctest.Object{"padding": strings.Repeat("x", 700)})),
		Quick: true}
	h.Authorize(gate.Credentials{Bytes: jwt.Bytes}, token.Write, time.Now())
	at := time.Now()
	measure := func(v gate.Credentials) time.Duration {
		began := time.Now()
		for range 1000 {
			if _, verdict, _ := h.Authorize(v, token.Write, at); verdict != gate.Allowed {
				b.Fatal(verdict)
			}
		}
		return time.Since(began)
	}
	var ofToken, ofJWT []time.Duration
	for b.Loop() {
		ofToken, ofJWT = append(ofToken, measure(static)), append(ofJWT, measure(jwt))
	}
	slices.Sort(ofToken)
	slices.Sort(ofJWT)
	token, jwtMedian := ofToken[len(ofToken)/2], ofJWT[len(ofJWT)/2]
	b.ReportMetric(float64(token)/1000, "ns/token")
	b.ReportMetric(float64(jwtMedian)/1000, "ns/JWT")
	b.ReportMetric(float64(jwtMedian)/float64(token), "JWT/token")
	b.ReportMetric(float64(len(jwt.Bytes)), "bytes")
}
