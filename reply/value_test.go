package reply_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/reply"
)

func TestIntValue(t *testing.T) {
	for n := -10; n < reply.SmallInts+10; n++ {
		got := reply.IntValue(n)
		if len(got) != 1 || cap(got) != 1 || got[0] != strconv.Itoa(n) {
			t.Fatalf("IntValue(%d) = %q with capacity %d", n, got, cap(got))
		}
	}
}

// To add to a shared value copies it: no other header sees what was added.
func TestSharedValuesAreNotWrittenByAdd(t *testing.T) {
	intern := reply.NewInterner(8, 64)
	for what, value := range map[string]func() []string{
		"Value":    func() []string { return reply.Value("a") },
		"IntValue": func() []string { return reply.IntValue(7) },
		"Interner": func() []string { return intern.Value("a") },
		"table":    func() []string { return reply.IntValue(8) },
	} {
		shared := value()
		want := shared[0]
		h := http.Header{"X": shared}
		h.Add("X", "more")
		if got := shared[:cap(shared)]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: shared slice became %q", what, got)
		}
		h.Set("X", "other")
		if shared[0] != want {
			t.Errorf("%s: Set wrote into the shared slice", what)
		}
	}
	if got := reply.IntValue(8)[0]; got != "8" {
		t.Errorf("IntValue(8) = %s after an Add to IntValue(7)", got)
	}
}

// Whatever is asked of a small table, the answer is what was asked for, and what
// was answered before stays.
func TestInterner(t *testing.T) {
	intern := reply.NewInterner(4, 10)
	rng := rand.New(rand.NewPCG(3, 4))
	type held struct {
		value []string
		want  string
	}
	var all []held
	for range 5000 {
		want := strings.Repeat("v", rng.IntN(12)) + strconv.Itoa(rng.IntN(20))
		var value []string
		if rng.IntN(2) == 0 {
			value = intern.Value(want)
		} else {
			b := []byte(want)
			value = intern.ValueBytes(b)
			for i := range b {
				b[i] = '!' // the caller uses its buffer again
			}
		}
		if len(value) != 1 || cap(value) != 1 {
			t.Fatalf("%q: length %d, capacity %d", want, len(value), cap(value))
		}
		all = append(all, held{value, want})
	}
	for _, h := range all {
		if h.value[0] != h.want {
			t.Fatalf("a held value became %q, was %q", h.value[0], h.want)
		}
	}
}

func TestInternerKeeps(t *testing.T) {
	intern := reply.NewInterner(1024, 32)
	for i := range 100 {
		intern.Value(fmt.Sprint("/v1/devices/", i))
	}
	shared := 0
	for i := range 100 {
		s := fmt.Sprint("/v1/devices/", i)
		if &intern.Value(s)[0] == &intern.ValueBytes([]byte(s))[0] {
			shared++
		}
	}
	// The hash has a new seed in every run. In a table of ten times their number
	// five that fall into one set of four are rare, and ten such sets unheard of.
	if shared < 90 {
		t.Errorf("%d of 100 values were found again in a table of 1,024", shared)
	}
	long := strings.Repeat("x", 33)
	if a, b := intern.Value(long), intern.Value(long); &a[0] == &b[0] {
		t.Error("a value above maxBytes was kept")
	}
}

// Under the race detector: readers of displaced entries and writers of new ones
// do not meet.
func TestInternerConcurrent(t *testing.T) {
	intern := reply.NewInterner(2, 64)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var last []string
			var want string
			for i := range 5000 {
				if last != nil && last[0] != want {
					t.Errorf("a held value became %q, was %q", last[0], want)
					return
				}
				want = strconv.Itoa((g + i) % 7)
				last = intern.Value(want)
				if last[0] != want {
					t.Errorf("Value(%q) = %q", want, last[0])
					return
				}
			}
		})
	}
	wg.Wait()
}
