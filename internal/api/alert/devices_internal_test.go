package alert

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
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

// While exceptions are set and removed, others can look up those that stay.
func TestExceptions(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 1))
	x, model := newExceptions(0), map[uint64]exception{}
	hashes := make([]uint64, 200)
	for i := range hashes {
		hashes[i] = rng.Uint64() >> (20 * rng.IntN(3)) // often next to each other
	}
	var published atomic.Pointer[exceptions]
	stays := exception{hash: hashes[0], active: 5, untilUnixMs: 7}
	x = x.set(stays)
	published.Store(x)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if e := published.Load().get(stays.hash); e == nil || *e != stays {
					t.Errorf("got %v, want %v", e, stays)
					return
				}
			}
		}
	}()
	for i := range 20_000 {
		hash := hashes[1+rng.IntN(len(hashes)-1)]
		if rng.IntN(2) == 0 {
			model[hash] = exception{hash: hash, active: uint64(i)}
			x = x.set(model[hash])
			published.Store(x)
		} else {
			delete(model, hash)
			x.remove(hash)
		}
		other := hashes[1+rng.IntN(len(hashes)-1)]
		e, want := x.get(other), model[other]
		if is := e != nil; is && *e != want || is != (want.hash != 0) {
			t.Fatalf("step %d: got %v, want %v", i, e, want)
		}
	}
	if most := 64 * len(hashes); len(x.all) > most {
		t.Errorf("room for %d, want at most %d", len(x.all), most)
	}
	close(stop)
	<-done
}
