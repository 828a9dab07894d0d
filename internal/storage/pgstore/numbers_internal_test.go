package pgstore

import (
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNumbers encodes numbers. The bytes are those of release 0.1.0, and stay so.
func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		name string
		all  []int64
		want string
	}{
		{"one", []int64{7200}, "01" + "00000001" + "80001c20" + "00"},
		{"a byte", []int64{7200, 7000, 32500}, "01" + "00000064" + "80001b58" + "0200ff"},
		{"two bytes", []int64{-5, 0, 2000}, "02" + "00000005" + "7ffffffb" + "0000" + "0001" + "0191"},
		{"four bytes", []int64{math.MinInt32, math.MaxInt32, 0}, "04" + "00000001" + "00000000" + "00000000" +
			"ffffffff" + "80000000"},
		{"the greatest divisor", []int64{math.MinInt32, math.MaxInt32}, "01" + "ffffffff" + "00000000" + "0001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := hex.EncodeToString(encodeNumbers(tt.all)); got != tt.want {
				t.Errorf("encoded as %s, want %s", got, tt.want)
			}
		})
	}
}

// TestNumbersRandom decodes what was encoded, and nothing shorter.
func TestNumbersRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		divisor, least := rapid.SampledFrom([]int64{1, 7, 10, 100}).Draw(t, "divisor"),
			rapid.Int64Range(math.MinInt32, 0).Draw(t, "least")
		most := rapid.SampledFrom([]int64{0, 255, 256, 65535, 65536, math.MaxInt32 / divisor}).Draw(t, "most")
		all := rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, most), func(x int64) int64 { return least + x*divisor }), 1, 20).
			Draw(t, "numbers")
		var c numbers32
		if b := encodeNumbers(all); !c.decode(b, len(all)) || c.decode(b[:len(b)-1], len(all)) || c.decode(b[:5], 1) {
			t.Fatalf("decode does not accept exactly what was encoded")
		}
		c.decode(encodeNumbers(all), len(all))
		got := make([]int64, len(all))
		for i := range got {
			got[i] = c.at(i)
		}
		if !slices.Equal(got, all) {
			t.Fatalf("decoded %v", got)
		}
	})
}
