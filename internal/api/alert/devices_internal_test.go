package alert

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// Devices whose names have the same hash are distinguished.
func TestDevices(t *testing.T) {
	d, model := newDevices(), map[vitals.Name]*watched{}
	d.hash = func(name *vitals.Name) uint64 { return uint64(name.Len()) }
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		n := name(t, fmt.Sprint("d", rng.IntN(200)))
		switch w := d.get(&n); {
		case w != model[n]:
			t.Fatalf("%s: got %p, want %p", n, w, model[n])
		case w == nil:
			w = &watched{name: n}
			d.put(w)
			model[n] = w
		default:
			d.remove(w)
			delete(model, n)
		}
	}
	n := 0
	for w := range d.all() {
		if n++; model[w.name] != w {
			t.Errorf("%s is not a device", w.name)
		}
	}
	if n != len(model) || d.len() != n || n == 0 {
		t.Errorf("%d devices, the length is %d, want %d", n, d.len(), len(model))
	}
}
