package share

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Resource is a kind of bounded resource.
type Resource uint8

// The resources.
const (
	Connections Resource = iota
	Refusals             // connections that get one answer and are closed
	Handshakes           // of TLS, in progress
	Memory               // bytes
	Places               // of requests that read
	Parquet              // pages in Parquet; each has a place, too
	Replays              // of alerts; each has a place, too
	Streams              // of live readings
	numResources
)

// A Holder is a client: an address or a token. The nil Holder is exempt: it may take all
// that is left. A Holder is safe for concurrent use.
type Holder struct {
	key    any
	refs   int // guarded by Holders.mu
	held   [numResources]atomic.Int64
	wanted atomic.Int64 // see Conns
}

// Take takes n of a resource and reports whether h may. left is what remains of the total
// without these n. The caller must have subtracted n from the total already.
func (h *Holder) Take(r Resource, n, left int64) bool {
	if h == nil {
		return true
	}
	if held := h.held[r].Add(n); held-n > left {
		h.held[r].Add(-n)
		return false
	}
	return true
}

// Give returns n of a resource.
func (h *Holder) Give(r Resource, n int64) {
	if h != nil {
		h.held[r].Add(-n)
	}
}

// Holders are the holders in use, by key. The zero Holders is ready to use. The nil Holders
// exempts every client.
type Holders struct {
	// Exempt are networks whose addresses many clients share, such as those of
	// proxies. It must not change.
	Exempt []netip.Prefix

	mu    sync.Mutex
	byKey map[any]*Holder // guarded by mu
}

// Get returns the holder of a key, which must be comparable and not a netip.Addr. The
// caller must call Put with it.
func (hs *Holders) Get(key any) *Holder {
	if hs == nil {
		return nil
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.byKey[key]
	if h == nil {
		if hs.byKey == nil {
			hs.byKey = map[any]*Holder{}
		}
		h = &Holder{key: key}
		hs.byKey[key] = h
	}
	h.refs++
	return h
}

// Addr is like Get for a peer's address. An IPv6 network of 64 bits counts as one address,
// because it is assigned to one site. The holder of an exempt or invalid address is nil.
func (hs *Holders) Addr(addr netip.Addr) *Holder {
	if hs == nil || !addr.IsValid() || hs.IsExempt(addr) {
		return nil
	}
	return hs.Get(Network(addr))
}

// Network returns what counts as the address: an IPv4 address, or an IPv6 network of 64 bits. That of an invalid
// address is the zero Prefix.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // an error means that addr is invalid
	return network
}

// IsExempt reports whether an address is in one of the exempt networks.
func (hs *Holders) IsExempt(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, network := range hs.Exempt {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// Put releases a holder. Return all that it holds first.
func (hs *Holders) Put(h *Holder) {
	if hs == nil || h == nil {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.refs--; h.refs == 0 {
		delete(hs.byKey, h.key)
	}
}
