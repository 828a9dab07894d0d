package share

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Resource is what is divided.
type Resource uint8

// The resources.
const (
	Connections Resource = iota
	Refusals             // connections that get one answer, because there are too many
	Handshakes           // of TLS, under way
	Memory               // bytes
	Places               // of requests that read
	numResources
)

// A Holder is a client: an address, or a token. The nil Holder is exempt: it may take
// what there is. Its methods may be called from many goroutines.
type Holder struct {
	key    any
	refs   int // guarded by Holders.mu
	held   [numResources]atomic.Int64
	wanted atomic.Int64 // see Conns
}

// Take takes n of a resource of which left is left without them, and reports whether h
// may. The rest of the promise is the caller's, which has taken n from the total.
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

// Give gives n back.
func (h *Holder) Give(r Resource, n int64) {
	if h != nil {
		h.held[r].Add(-n)
	}
}

// Holders are those that hold something. The zero Holders is ready to use, and the nil
// Holders exempts everybody.
type Holders struct {
	// Exempt are networks whose addresses are nobody's own, such as those of proxies.
	// It must not change.
	Exempt []netip.Prefix

	mu    sync.Mutex
	byKey map[any]*Holder // guarded by mu
}

// Get returns the holder of a key, which is comparable and not a netip.Addr. The caller
// must Put it.
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

// Addr is Get for a peer's address. Of IPv6, a network of 64 bits counts as one address:
// it is what one site is given. An exempt address, and one that is not known, has no
// holder.
func (hs *Holders) Addr(addr netip.Addr) *Holder {
	if hs == nil || !addr.IsValid() || hs.IsExempt(addr) {
		return nil
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return nil // not for these numbers of bits
	}
	return hs.Get(network)
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

// Put gives a holder back. What it holds must have been given back before.
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

// Len returns how many holders there are.
func (hs *Holders) Len() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.byKey)
}
