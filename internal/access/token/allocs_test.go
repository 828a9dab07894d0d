//go:build !race

package token_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

func TestLookupAllocs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	spec := writer(t, "bed-7")
	spec.Rights |= token.Read
	spec.Devices = name(t, "ppg-")
	spec.Limit = token.Limit{PerSecond: 1, Burst: token.MaxBurst}
	text, _ := create(t, path, spec)
	s := open(t, path, token.Options{})
	device := name(t, "ppg-000123")
	for _, tt := range []struct {
		name, value string
		want        error
	}{
		{"good", "Bearer " + text, nil},
		{"unknown", "Bearer " + sample, token.ErrUnknown},
		{"malformed", "Bearer " + sample[:20], token.ErrMalformed},
		{"missing", "", token.ErrMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value := []byte(tt.value)
			got := testing.AllocsPerRun(1000, func() {
				g, err := find(s, tt.value, epoch.UnixMilli())
				if _, err2 := token.DigestOfHeader(value); !errors.Is(err, tt.want) ||
					(err2 == nil) != (tt.want == nil || tt.want == token.ErrUnknown) {
					t.Fatal(err, err2)
				}
				if err != nil {
					return
				}
				gateway, before := g.Gateway(), g.Before()
				if ok, _ := g.Allow(1, epoch); !ok || !g.Has(token.Write) || !g.Covers(&device) || gateway.IsZero() ||
					before.IsZero() {
					t.Fatal("the access lacks something that the spec asked for")
				}
			})
			if got != 0 {
				t.Errorf("got %v allocations, want 0", got)
			}
		})
	}
}
