package eventloop_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"pgregory.net/rapid"
)

// A localMemory is a Memory for one goroutine.
type localMemory struct{ left int }

func (m *localMemory) Reserve(_ *share.Holder, n int) bool {
	if n > m.left {
		return false
	}
	m.left -= n
	return true
}

func (m *localMemory) Release(_ *share.Holder, n int) { m.left += n }

// The capacity of each buffer in use is reserved. It is at most twice the requested size,
// and no buffer is in use twice.
func TestBuffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const all = 1 << 20
		memory := &localMemory{all}
		stock := eventloop.NewStock(memory)
		var lent [][]byte
		size := rapid.OneOf(rapid.IntRange(1, 600), rapid.IntRange(1, 300<<10))
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				n := size.Draw(t, "n")
				b := stock.Get(n)
				if b == nil {
					if memory.left >= max(2*n, 512) {
						t.Fatalf("%d bytes rejected with %d left", n, memory.left)
					}
					return
				}
				if len(b) != 0 || cap(b) < n || cap(b) >= max(2*n, 513) {
					t.Fatalf("%d bytes: length %d, capacity %d", n, len(b), cap(b))
				}
				lent = append(lent, append(b, byte(len(lent))))
			},
			"grow": func(t *rapid.T) {
				if len(lent) == 0 {
					return
				}
				i := rapid.IntRange(0, len(lent)-1).Draw(t, "i")
				n := len(lent[i]) + size.Draw(t, "n")
				if b := stock.Grown(lent[i], n); b != nil {
					if cap(b) < n || len(b) != len(lent[i]) {
						t.Fatalf("grown to length %d, capacity %d; want room for %d", len(b), cap(b), n)
					}
					lent[i] = b
				}
			},
			"put": func(t *rapid.T) {
				if len(lent) == 0 {
					return
				}
				last := len(lent) - 1
				stock.Put(lent[last])
				lent = lent[:last]
			},
			"": func(t *rapid.T) {
				reserved := 0
				for i, b := range lent {
					if b[0] != byte(i) {
						t.Fatalf("buffer %d of %d was lent twice", i, len(lent))
					}
					reserved += cap(b)
				}
				if memory.left != all-reserved {
					t.Fatalf("%d bytes reserved, want %d", all-memory.left, reserved)
				}
			},
		})
	})
}
