package fastparse

// A Publish holds the positions of the parts of an MQTT PUBLISH packet.
type Publish struct {
	Topic, Payload Span
	PacketID       uint16 // 0 with QoS 0
	QoS            byte
	Retain         bool // only before version 5

	// Size is the length of the packet, once its fixed header is complete, even with More.
	Size int
}

// RecognisePublish reports whether b begins with a PUBLISH packet of the shape that nearly every
// client sends (MQTT 3.1.1, section 3.3, and MQTT 5.0, section 3.3): a topic of visible ASCII without
// wildcards, a packet identifier other than 0 if the QoS is 1 or 2, with version 5 no properties and
// no RETAIN, and a remaining length in as few bytes as possible. It reads no byte after that packet.
//
// The packets that it accepts are valid, and a general parser reads them in the same way:
// FuzzPublish compares it with one. In doubt the verdict is [Other]. Over a prefix of
// a stream the verdict is [More] until it becomes [Accept] or [Other], which then remains.
func RecognisePublish(b []byte, version5 bool) (Publish, Verdict) {
	var p Publish
	if len(b) == 0 {
		return p, More
	}
	p.QoS, p.Retain = b[0]>>1&3, b[0]&1 != 0
	if dup := b[0]&8 != 0; b[0]>>4 != 3 || p.QoS == 3 || p.QoS == 0 && dup || p.Retain && version5 {
		return Publish{}, Other
	}
	length, i := 0, 1
	for shift := 0; ; shift += 7 {
		if i == len(b) {
			return p, More
		}
		c := b[i]
		i++
		length |= int(c&0x7f) << shift
		if c < 0x80 {
			if c == 0 && shift > 0 {
				return Publish{}, Other
			}
			break
		}
		if shift == 21 {
			return Publish{}, Other
		}
	}
	p.Size = i + length
	if len(b) < i+2 {
		if length < 2 {
			return Publish{}, Other
		}
		return p, More
	}
	p.Topic = Span{i + 2, i + 2 + (int(b[i])<<8 | int(b[i+1]))}
	i = p.Topic.End
	least := i
	if p.QoS > 0 {
		least += 2
	}
	if version5 {
		least++
	}
	if least > p.Size || p.Topic.Start == p.Topic.End {
		return Publish{}, Other
	}
	for _, c := range b[p.Topic.Start:min(p.Topic.End, len(b))] {
		if c <= ' ' || c >= 0x7f || c == '+' || c == '#' {
			return Publish{}, Other
		}
	}
	if len(b) < least {
		return p, More
	}
	if p.QoS > 0 {
		p.PacketID = uint16(b[i])<<8 | uint16(b[i+1])
		i += 2
		if p.PacketID == 0 {
			return Publish{}, Other
		}
	}
	if version5 {
		if b[i] != 0 {
			return Publish{}, Other
		}
		i++
	}
	p.Payload = Span{i, p.Size}
	if len(b) < p.Size {
		return p, More
	}
	return p, Accept
}
