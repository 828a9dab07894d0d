package ingest

import (
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Memory bounds the memory of all bodies that are read or decoded. Its methods may be called from
// many goroutines.
type Memory struct {
	most  int64 // Config.MaxBodyBytes
	small int   // largest size of the buffer of a single reading: its maximum length and one byte

	// held counts the reserved bytes.
	//
	// Invariant: at most most.
	held atomic.Int64
	full atomic.Bool // a large body found no memory; see rejects
}

// Memory returns the memory of c, out of Config.MaxBodyBytes.
func (c *Core) Memory() *Memory { return &c.memory }

// Reserve reserves n bytes, charged to h, and reports whether they were available.
func (m *Memory) Reserve(h *share.Holder, n int) bool { return m.reserveUpTo(h, n, m.most) }

// Release releases n reserved bytes.
func (m *Memory) Release(h *share.Holder, n int) {
	h.Give(share.Memory, int64(n))
	m.held.Add(int64(-n))
}

// ReserveFor is Reserve for a body of all bytes in total. Large bodies may take at most seven
// eighths of the memory, so that a few clients that send or announce large bodies do not
// block the many that send single readings.
func (m *Memory) ReserveFor(h *share.Holder, n, all int) bool {
	if all <= m.small {
		return m.Reserve(h, n)
	}
	return m.reserveUpTo(h, n, m.forLarge())
}

func (m *Memory) reserveUpTo(h *share.Holder, n int, most int64) bool {
	held := m.held.Add(int64(n))
	if held <= most && h.Take(share.Memory, int64(n), most-held) {
		return true
	}
	m.held.Add(int64(-n))
	if held > most {
		m.full.Store(true) // not set if only the holder's share is exhausted
	}
	return false
}

// forLarge returns the memory that large bodies may take.
func (m *Memory) forLarge() int64 { return m.most / 8 * 7 }

// rejects reports whether a body of the announced length, which may be unknown, is rejected
// before it is read. Once a large body found no memory, further large ones are rejected until
// a quarter of the memory for large bodies is free: otherwise many would be read in part, and
// none completely.
func (m *Memory) rejects(length int64) bool {
	if length >= 0 && length < int64(m.small) || !m.full.Load() {
		return false
	}
	if m.held.Load() <= m.forLarge()/4*3 {
		m.full.Store(false)
		return false
	}
	return true
}
