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
	updates, found := make([]update, atOnce), [atOnce]*watched{}
	for i := range 200 / atOnce {
		for j := range updates {
			updates[j].device = name(t, fmt.Sprint("d", i*atOnce+j))
		}
		d.find(updates, &found)
		for j, w := range found {
			if want := model[updates[j].device]; w != want && w != nil {
				t.Errorf("%s: found %p, want %p", updates[j].device, w, want)
			}
		}
	}
	n := 0
	for w := range d.all() {
		if n++; model[w.name] != w {
			t.Errorf("%s is not a device", w.name)
		}
	}
	hashed := newDevices()
	for i := range updates {
		hashed.put(&watched{name: updates[i].device})
	}
	hashed.find(updates, &found)
	for i, w := range found {
		if w == nil || w.name != updates[i].device {
			t.Errorf("%s was not found", updates[i].device)
		}
	}
	if n != len(model) || d.n != n || n == 0 {
		t.Errorf("%d devices, the length is %d, want %d", n, d.n, len(model))
	}
}
