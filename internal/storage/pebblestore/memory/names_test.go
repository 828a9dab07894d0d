package memory_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
)

// A table of devices finds what a map of names finds, also when all names have one of few hashes,
// and when names of all lengths are removed and replaced by others.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := memory.NewNameTable(rapid.Uint32Range(0, 3).Draw(t, "hash bits") * 8)
		model := map[string]uint32{}
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			name := fmt.Sprintf("d%d", rapid.IntRange(0, 120).Draw(t, "name"))
			name += strings.Repeat("x", rapid.SampledFrom([]int{0, 10, 11, 12, 13, 14, 28, 60}).Draw(t, "more"))
			number, ok := index.Find(name)
			want, known := model[name]
			if ok != known || ok && number != want {
				t.Fatalf("%s: got %d, %v; want %d, %v", name, number, ok, want, known)
			}
			switch {
			case !known:
				model[name] = index.Add(name)
			case rapid.Bool().Draw(t, "remove"):
				index.Remove(name)
				delete(model, name)
			}
		}
		all := index.All()
		if len(all) != len(model) || index.Len() != len(model) {
			t.Fatalf("all has %d devices, len is %d; want %d", len(all), index.Len(), len(model))
		}
		for name, number := range model {
			if got, ok := all[name]; !ok || got != number {
				t.Fatalf("%s: all has %d, %v; want %d", name, got, ok, number)
			}
		}
	})
}
