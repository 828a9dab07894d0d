package eventloop

import (
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Memory bounds the memory of a [Server]'s connections. It may be shared with others.
// Its methods must be safe for concurrent use.
type Memory interface {
	// Reserve takes n bytes for a holder, and reports whether they were available to it.
	Reserve(h *share.Holder, n int) bool

	// Release returns n bytes.
	Release(h *share.Holder, n int)
}

// Buffers have sizes of powers of two. Larger ones are allocated when needed and not kept.
const (
	minBufferBits = 9  // 512 B
	maxBufferBits = 17 // 128 KiB

	// maxKeptBytes bounds the unused buffers of each size that a loop keeps.
	maxKeptBytes = 256 << 10
)

// buffers is the buffer pool of a loop.
//
// Invariant: the capacity of each buffer in use is reserved in memory, and a buffer is
// used by one connection at a time. Unused buffers are not reserved; they have a bound of
// their own.
type buffers struct {
	memory Memory
	unused [maxBufferBits - minBufferBits + 1][][]byte
}

// get returns an empty buffer with capacity for n bytes, or nil if there is no memory.
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

// put returns a buffer to the pool. It must not be used afterwards.
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

// grown returns b with capacity for n bytes in all, or nil if there is no memory; b is
// then still in use.
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
