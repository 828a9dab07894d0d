package memlimit_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/memlimit"
	"pgregory.net/rapid"
)

var most = memlimit.Bounds{
	CacheBytes: 64 << 20, MemTableBytes: 16 << 20, WindowRows: 1 << 20, MaxBodyBytes: 256 << 20, MaxBatchBytes: 32 << 20,
	MaxQueued: 1 << 18, MaxDevices: 1_000_000, MaxConns: 1 << 16, AlertBytes: 512 << 20,
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes int64
		want  memlimit.Bounds
	}{
		{"plenty", 16 << 30, most},
		{"100 MB", 100_000_000, memlimit.Bounds{
			CacheBytes: 16_666_666, MemTableBytes: 4_166_666, WindowRows: 86_805, MaxBodyBytes: 16_666_666,
			MaxBatchBytes: 781_250,
			MaxQueued:     12_207, MaxDevices: 52_083, MaxConns: 2_034, AlertBytes: 4_166_666,
		}},
		{"nothing", 0, memlimit.Bounds{
			CacheBytes: 4 << 20, MemTableBytes: 1 << 20, WindowRows: 16 << 10, MaxBodyBytes: 1 << 20, MaxBatchBytes: 64 << 10,
			MaxQueued: 1024, MaxDevices: 1024, MaxConns: 64, AlertBytes: 1 << 20,
		}},
	} {
		if got := memlimit.Fit(tt.bytes, most); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// More memory never makes a bound smaller, and no bound exceeds its default. Two
// memtables fit into the cache.
func TestFitGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, 1<<36).Draw(t, "bytes")
		b := a + rapid.Int64Range(0, 1<<36).Draw(t, "more")
		less, more := memlimit.Fit(a, most), memlimit.Fit(b, most)
		for _, pair := range [][3]int64{
			{less.CacheBytes, more.CacheBytes, most.CacheBytes},
			{less.MemTableBytes, more.MemTableBytes, most.MemTableBytes},
			{int64(less.WindowRows), int64(more.WindowRows), int64(most.WindowRows)},
			{int64(less.MaxBodyBytes), int64(more.MaxBodyBytes), int64(most.MaxBodyBytes)},
			{int64(less.MaxBatchBytes), int64(more.MaxBatchBytes), int64(most.MaxBatchBytes)},
			{int64(less.MaxQueued), int64(more.MaxQueued), int64(most.MaxQueued)},
			{int64(less.MaxDevices), int64(more.MaxDevices), int64(most.MaxDevices)},
			{int64(less.MaxConns), int64(more.MaxConns), int64(most.MaxConns)},
			{less.AlertBytes, more.AlertBytes, most.AlertBytes},
		} {
			if pair[0] > pair[1] || pair[1] > pair[2] {
				t.Fatalf("%d bytes give %+v, %d bytes give %+v", a, less, b, more)
			}
		}
		if 2*less.MemTableBytes > less.CacheBytes {
			t.Fatalf("two memtables of %d bytes exceed a cache of %d", less.MemTableBytes, less.CacheBytes)
		}
	})
}

func TestUsable(t *testing.T) {
	for _, tt := range []struct{ limit, want int64 }{
		{128 << 20, 128<<20 - 16<<20 - 128<<20/10},
		{1 << 40, 1<<40 - 1<<30},
		{64 << 20, 64<<20 - 16<<20 - 64<<20/10},
		{1, memlimit.Usable(64 << 20)},
	} {
		if got := memlimit.Usable(tt.limit); got != tt.want {
			t.Errorf("%d: got %d, want %d", tt.limit, got, tt.want)
		}
	}
}
