package mqtt

import (
	"slices"

	"github.com/mochi-mqtt/server/v2/packets"
)

// The functions of this file decode packets with the library, after checks that it lacks: it checks neither where
// properties end, nor whether they are repeated, nor that nothing follows the last field, and reads
// the options of a filter that is the end of a packet.

func (st *session) decodePubrel(p *packets.Packet, body []byte) code {
	switch n := len(body); {
	case n < 2, n > 2 && st.version < 5:
		return malformed
	case n > 3:
		if why := onlyProperties(body[3:]); why != success {
			return why
		}
	}
	switch {
	case p.PubrelDecode(body) != nil:
		return malformed
	case p.PacketID == 0:
		return protocolError
	}
	return success
}

func (st *session) decodeDisconnect(p *packets.Packet, body []byte) code {
	switch n := len(body); {
	case n > 0 && st.version < 5:
		return malformed
	case n > 1:
		if why := onlyProperties(body[1:]); why != success {
			return why
		}
	}
	if p.DisconnectDecode(body) != nil {
		return malformed
	}
	return success
}

// decodeFilters decodes a SUBSCRIBE or UNSUBSCRIBE, each filter of which has so many bytes of options.
func (st *session) decodeFilters(p *packets.Packet, body []byte, decode func([]byte) error, options int) code {
	if len(body) < 2 {
		return malformed
	}
	rest := body[2:]
	if st.version == 5 {
		n, why := checkProperties(rest)
		if why != success {
			return why
		}
		rest = rest[n:]
	}
	reserved, ok := byte(0xfc), true
	if st.version == 5 {
		reserved = 0xc0
	}
	for len(rest) > 0 {
		n := text(rest)
		if n <= len("\x00\x00") || n+options > len(rest) {
			return malformed
		}
		for _, o := range rest[n : n+options] {
			if o&reserved != 0 {
				return malformed
			}
			ok = ok && o&3 != 3 && o&0x30 != 0x30 // QoS and retain handling
		}
		rest = rest[n+options:]
	}
	switch {
	case !ok:
		return protocolError
	case decode(body) != nil:
		return malformed
	case p.PacketID == 0, len(p.Filters) == 0, slices.Contains(p.Properties.SubscriptionIdentifier, 0):
		return protocolError
	}
	return success
}

// onlyProperties checks properties that are the rest of a packet.
func onlyProperties(b []byte) code {
	n, why := checkProperties(b)
	if why == success && n != len(b) {
		return malformed
	}
	return why
}
