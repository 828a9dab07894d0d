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

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		prefix, device string
		want           bool
	}{
		{"", "ppg-1", true},
		{"ppg-", "ppg-1", true},
		{"ppg-", "ppg-", true},
		{"ppg-", "ppg", false},
		{"ppg-", "PPG-1", false},
		{"ppg-", "xppg-1", false},
		{strings.Repeat("x", 64), strings.Repeat("x", 64), true},
		{strings.Repeat("x", 64), strings.Repeat("x", 63), false},
	} {
		path := t.TempDir() + "/tokens"
		text, _ := create(t, path, token.Token{Gateway: name(t, "ward"), Rights: token.Read, Devices: name(t, tt.prefix)})
		access := lookup(t, open(t, path, token.Options{}), text)
		device := name(t, tt.device)
		if got := access.Covers(&device); got != tt.want {
			t.Errorf("prefix %q covers %q: got %v, want %v", tt.prefix, tt.device, got, tt.want)
		}
		if got, want := access.CoversAll(), tt.prefix == ""; got != want {
			t.Errorf("prefix %q covers all: got %v, want %v", tt.prefix, got, want)
		}
		if got, want := access.Before(), token.Before(name(t, tt.prefix)); got != want {
			t.Errorf("prefix %q: Before = %q, want %q", tt.prefix, got, want)
		}
	}
}
