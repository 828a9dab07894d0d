//go:build !race

package audit_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

// Refusals without a record of their own are counted without allocating.
func TestRefusedAllocs(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "audit"), audit.Options{})
	r := audit.Refusal{Reason: audit.Unknown, Peer: netip.MustParseAddr("192.0.2.7")}
	for range 10 {
		l.Refused(r)
	}
	if got := testing.AllocsPerRun(1000, func() { l.Refused(r) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
