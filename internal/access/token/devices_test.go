package token_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// Before returns a name that sorts before all names with the prefix, and no other name
// sorts between.
func TestBefore(t *testing.T) {
	// These are the least, the second, some middle and the greatest of the bytes
	// allowed in names.
	letters := rapid.SampledFrom([]rune("-.09:AZ_ayz"))
	texts := func(least int) *rapid.Generator[string] {
		return rapid.OneOf(rapid.StringOfN(letters, least, 4, -1), rapid.StringOfN(letters, 60, 64, -1))
	}
	rapid.Check(t, func(rt *rapid.T) {
		prefix := texts(1).Draw(rt, "prefix")
		after := token.Before(name(t, prefix))
		if first := name(t, prefix); after.Compare(&first) >= 0 {
			rt.Fatalf("Before(%q) = %q does not sort before it", prefix, after)
		}
		other := texts(1).Draw(rt, "other")
		if rapid.Bool().Draw(rt, "near") {
			head := prefix[:rapid.IntRange(0, len(prefix)).Draw(rt, "common")]
			other = head + other
			other = other[:min(len(other), vitals.MaxNameBytes)]
		}
		if rapid.Bool().Draw(rt, "filled up") {
			other += strings.Repeat("z", vitals.MaxNameBytes-len(other))
		}
		first, between := name(t, prefix), name(t, other)
		if after.Compare(&between) < 0 && between.Compare(&first) < 0 {
			rt.Fatalf("%q sorts between Before(%q) = %q and the prefix", other, prefix, after)
		}
	})
	if got := token.Before(vitals.Name{}); !got.IsZero() {
		t.Errorf("before the zero prefix: %q, want the zero Name", got)
	}
}
