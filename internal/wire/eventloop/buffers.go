package eventloop

import (
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Memory bounds what the connections of a [Server] hold. It may be shared with
// others. Its methods are called by several goroutines.
type Memory interface {
	// Reserve takes n bytes for a holder and reports whether they were there, and his
	// to take.
	Reserve(h *share.Holder, n int) bool

	// Release gives n bytes back.
	Release(h *share.Holder, n int)
}

// Sizes of buffers: powers of two. A larger one is made for the occasion.
const (
	minBufferBits = 9  // 512 B
	maxBufferBits = 17 // 128 KiB

	// maxKeptBytes bounds the unused buffers of each size that a loop keeps.
	maxKeptBytes = 256 << 10
)

// buffers is a loop's stock of buffers.
//
// Invariant: what is lent out is reserved in memory, by capacity, and a buffer is
// lent to one connection at a time. What lies unused is not reserved: it is
// bounded by itself.
type buffers struct {
	memory Memory
	unused [maxBufferBits - minBufferBits + 1][][]byte
}

// get lends an empty buffer with room for n bytes. It returns nil when there is
// no memory.
func (p *buffers) get(h *share.Holder, n int) []byte {
	class := max(bits.Len(uint(max(n, 1)-1)), minBufferBits)
	size := 1 << class
	if !p.memory.Reserve(h, size) {
		return nil
	}
	if class > maxBufferBits {
		return make([]byte, 0, size)
	}
	stock := &p.unused[class-minBufferBits]
	if last := len(*stock) - 1; last >= 0 {
		b := (*stock)[last]
		(*stock)[last] = nil
		*stock = (*stock)[:last]
		return b[:0]
	}
	return make([]byte, 0, size)
}

// put takes a buffer back. Nobody may use it any more.
func (p *buffers) put(h *share.Holder, b []byte) {
	if b == nil {
		return
	}
	p.memory.Release(h, cap(b))
	class := bits.Len(uint(cap(b))) - 1
	if class > maxBufferBits {
		return
	}
	stock := &p.unused[class-minBufferBits]
	if (len(*stock)+1)<<class <= maxKeptBytes {
		*stock = append(*stock, b[:0])
	}
}

// grown returns b with room for n bytes in all. It returns nil when there is no
// memory; b is then still lent.
func (p *buffers) grown(h *share.Holder, b []byte, n int) []byte {
	if n <= cap(b) {
		return b
	}
	larger := p.get(h, n)
	if larger == nil {
		return nil
	}
	larger = append(larger, b...)
	p.put(h, b)
	return larger
}
