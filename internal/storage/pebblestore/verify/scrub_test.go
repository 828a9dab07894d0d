package verify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/verify"
)

// TestScrubRate checks the rate of the scrub.
func TestScrubRate(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, tt := range []struct {
		name  string
		bytes int64
		left  time.Duration
		want  int64
	}{
		{"nothing", 0, week, 256 << 10},
		{"a small store", 100 << 20, week, 256 << 10},
		{"a GiB in a quarter of an hour", 1 << 30, 900 * time.Second, 1193046},
		{"a TB in a week", 1e12, week, 1653439},
		{"100 TB in a week", 1e14, week, 8 << 20},
		{"late", 1, 0, 8 << 20},
		{"later", 1, -week, 8 << 20},
		{"the largest size", 1 << 62, 1, 8 << 20},
	} {
		if got := verify.ScrubRate(tt.bytes, tt.left); got != tt.want {
			t.Errorf("%s: %d bytes per second, want %d", tt.name, got, tt.want)
		}
	}
}

// TestScrubState checks the format of SCRUB.
func TestScrubState(t *testing.T) {
	const none = "pulsegate scrub 1\nbegun 0\ntables 0 to 0\nended 0\n"
	const some = "pulsegate scrub 1\nbegun 1763805600000\ntables 124 to 560\nended 1763200812345\nbad 97\nbad 98\n"
	for _, text := range []string{none, some} {
		text = withSum(text)
		got, err := verify.RewriteScrubState([]byte(text))
		if err != nil || string(got) != text {
			t.Errorf("%q was formatted again as %q, %v", text, got, err)
		}
		for i := range text {
			for _, damaged := range []string{text[:i], text[:i] + "7" + text[i+1:], text[:i] + text[i+1:]} {
				if damaged == text {
					continue
				}
				if _, err := verify.RewriteScrubState([]byte(damaged)); !errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("%q was accepted: %v", damaged, err)
				}
			}
		}
	}
	many := some + strings.Repeat("bad 99\n", 1000)
	if _, err := verify.RewriteScrubState([]byte(withSum(many))); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%d tables were accepted: %v", 1002, err)
	}
}

// withSum returns a text followed by the line with its checksum.
func withSum(text string) string {
	return fmt.Sprintf("%send %08x\n", text, datadir.Checksum([]byte(text)))
}
