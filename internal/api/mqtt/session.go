package mqtt

import (
	"bytes"
	"cmp"
	"time"
	"unicode/utf8"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/vitals"
)

// receiveMaximum is the number of publications of a connection that may wait for their acknowledgement.
// More are read when these are acknowledged.
const receiveMaximum = 64

// maxKeepAlive bounds the time that a client may be silent: a connection without keep alive would hold
// its place for ever.
const maxKeepAlive = 20 * time.Minute

// Bounds of the packets of a connection that need no commit, so that a client that sends thousands of them, or long
// ones, does not keep others from the server: it is not read for burstPause after more than maxBurst within that time.
// A packet counts once, and once more for each 128 bytes, because a SUBSCRIBE may have thousands of filters. A
// publication that needs a commit makes up for one, because a PUBREL follows it.
const (
	maxBurst   = 256
	burstPause = 100 * time.Millisecond
)

// rests counts a packet of a size, and reports whether the connection is not to be read for burstPause.
func (s *service) rests(st *session, size int, commits bool) bool {
	if commits {
		st.burst = max(st.burst-1, 0)
		return false
	}
	if now := s.opt.Now().UnixMilli(); now-st.burstSince >= burstPause.Milliseconds() {
		st.burst, st.burstSince = 0, now
	}
	if st.burst += 1 + size/128; st.burst <= maxBurst {
		return false
	}
	st.burst = 0
	s.counters.slowed.Add(1)
	return true
}

// A session is the state of a connection. Nothing of it remains after the connection.
type session struct {
	version    byte // 4 is MQTT 3.1.1, 5 is MQTT 5.0; 0 before CONNECT
	terse      bool // the client wants no reason strings
	ended      bool // the server has decided to end the connection, or the client has
	silent     bool // the last packet is sent: nothing may follow
	hasToken   bool
	maxPacket  uint32        // length of the longest packet that the client takes; 0 means any
	quiet      time.Duration // after which a silent client is given up
	heldSince  int64         // Unix ms since when a publication is not read, for lack of a resource; 0 means none is
	burst      int           // packets that needed no commit since burstSince; see maxBurst
	burstSince int64         // Unix ms
	digest     token.Digest
	gateway    vitals.Name // that the credentials name, or the user name

	farewell []byte // the last packet, to be sent after the acknowledgements
}

// credentials returns the credentials of the client, which are checked with each publication.
func (st *session) credentials(v gate.Credentials) gate.Credentials {
	if st.hasToken {
		v.Digest = &st.digest
	}
	return v
}

// Types of packets.
const (
	typePublish  = packets.Publish
	typePuback   = packets.Puback
	typePubrec   = packets.Pubrec
	typePubcomp  = packets.Pubcomp
	typePingresp = packets.Pingresp
)

// frame returns the length of the packet that begins with b, and where its body begins. ok is false if b does not
// hold as much, and valid is false if there is no such packet.
func frame(b []byte) (size, body int, ok, valid bool) {
	length := 0
	for i := 1; i < len(b); i++ {
		length |= int(b[i]&0x7f) << (7 * (i - 1))
		if b[i] < 0x80 {
			return i + 1 + length, i + 1, true, b[i] != 0 || i == 1
		}
		if i == 4 {
			return 0, 0, false, false
		}
	}
	return 0, 0, false, true
}

// opens reports whether a connection may begin with a packet whose first byte is first, so that a client of
// another protocol is not waited for.
func (st *session) opens(first byte) (code, bool) {
	switch {
	case st.version != 0 || first == packets.Connect<<4:
		return success, true
	case first>>4 == packets.Connect:
		return malformed, false
	}
	return protocolError, false
}

// tooLarge reports whether a packet is longer than the server takes. Only publications may be long.
func (s *service) tooLarge(st *session, first byte, size int) bool {
	if st.version == 0 || first>>4 != typePublish {
		return size > fastparse.MaxBodyBytes
	}
	return size > s.opt.MaxBytes
}

// control handles a packet that is not a PUBLISH. It returns the packet to send, if any, and whether the
// connection ends with it. client has the peer and its certificate. A guest is refused: there are too many connections.
func (s *service) control(st *session, first byte, body []byte, client gate.Credentials, guest bool) (answer []byte,
	end bool) {
	p := packets.Packet{ProtocolVersion: st.version}
	p.FixedHeader.Remaining = len(body)
	if p.FixedHeader.Decode(first) != nil {
		return s.end(st, malformed)
	}
	if st.version == 0 {
		return s.connect(st, &p, body, client, guest)
	}
	if p.FixedHeader.Type != packets.Disconnect {
		if why := s.authorize(st, client); why != success {
			return s.end(st, why)
		}
	}
	why := protocolError
	switch p.FixedHeader.Type {
	case packets.Pubrel:
		if why = st.decodePubrel(&p, body); why == success {
			return []byte{typePubcomp << 4, 2, byte(p.PacketID >> 8), byte(p.PacketID)}, false
		}
	case packets.Subscribe:
		if why = st.decodeFilters(&p, body, p.SubscribeDecode, 1); why == success {
			return s.decline(st, &p, packets.Suback)
		}
	case packets.Unsubscribe:
		if why = st.decodeFilters(&p, body, p.UnsubscribeDecode, 0); why == success {
			return s.decline(st, &p, packets.Unsuback)
		}
	case packets.Pingreq:
		if why = malformed; len(body) == 0 {
			return []byte{typePingresp << 4, 0}, false
		}
	case packets.Disconnect:
		if why = st.decodeDisconnect(&p, body); why == success {
			st.ended = true
			s.counters.endings[endedByClient].Add(1)
			return nil, true
		}
	} // the rest: packets of servers, acknowledgements of what was never sent, AUTH without a method, a second CONNECT
	return s.end(st, why)
}

// decline answers a SUBSCRIBE or UNSUBSCRIBE. An answer that is too long for the client ends the connection.
func (s *service) decline(st *session, p *packets.Packet, kind byte) (answer []byte, end bool) {
	a := packets.Packet{ProtocolVersion: st.version, PacketID: p.PacketID}
	a.FixedHeader.Type = kind
	a.ReasonCodes = bytes.Repeat([]byte{byte(unspecified)}, len(p.Filters)) // version 3.1.1, section 3.9.3
	var out bytes.Buffer
	var err error
	if kind == packets.Suback {
		if st.version == 5 {
			a.ReasonCodes = bytes.Repeat([]byte{byte(notAuthorized)}, len(p.Filters))
		}
		err = a.SubackEncode(&out)
	} else {
		a.ReasonCodes = bytes.Repeat([]byte{byte(noSubscription)}, len(p.Filters))
		err = a.UnsubackEncode(&out)
	}
	if err != nil {
		panic("mqtt: " + err.Error()) // the packet has an identifier
	}
	if st.tooLong(out.Len()) {
		return s.end(st, packetTooLarge)
	}
	return out.Bytes(), false
}

// end counts why the server ends a connection, and returns its last packet: version 3.1.1 has none.
func (s *service) end(st *session, why code) (answer []byte, end bool) {
	st.ended = true
	s.counters.endings[why.ending()].Add(1)
	if st.version != 5 {
		return nil, true
	}
	return []byte{packets.Disconnect << 4, 2, byte(why), 0}, true
}

// connect handles a CONNECT.
func (s *service) connect(st *session, p *packets.Packet, body []byte, client gate.Credentials,
	guest bool) (answer []byte, end bool) {
	why := s.accept(st, p, body, client, guest)
	if why == success {
		// then all other packets are shorter, but for those that are checked
		if answer = s.connack(st, p); !st.tooLong(len(answer)) {
			s.counters.accepted.Add(1)
			return answer, false
		}
		why = packetTooLarge
	}
	s.counters.refused.Add(1)
	st.ended = true
	s.counters.endings[why.ending()].Add(1)
	switch returnCode, ok := why.connack3(); {
	case why == packetTooLarge, p.ProtocolVersion != 5 && !ok:
		return nil, true
	case p.ProtocolVersion != 5:
		return []byte{packets.Connack << 4, 2, 0, returnCode}, true
	}
	return []byte{packets.Connack << 4, 3, 0, byte(why), 0}, true
}

// connack returns the answer to a CONNECT that is accepted.
func (s *service) connack(st *session, p *packets.Packet) []byte {
	if st.version != 5 {
		return []byte{packets.Connack << 4, 2, 0, 0}
	}
	a := packets.Packet{ProtocolVersion: 5, Properties: packets.Properties{
		ReceiveMaximum:           receiveMaximum,
		MaximumPacketSize:        uint32(s.opt.MaxBytes),
		RetainAvailableFlag:      true, // and the flags of what is not available, which are 0
		WildcardSubAvailableFlag: true,
		SubIDAvailableFlag:       true,
		SharedSubAvailableFlag:   true,
	}}
	a.FixedHeader.Type = packets.Connack
	if p.Connect.ClientIdentifier == "" {
		a.Properties.AssignedClientID = newIdentifier()
	}
	if k := time.Duration(p.Connect.Keepalive) * time.Second; k == 0 || k > maxKeepAlive {
		a.Properties.ServerKeepAlive, a.Properties.ServerKeepAliveFlag = uint16(maxKeepAlive/time.Second), true
	}
	a.Properties.SessionExpiryIntervalFlag = p.Properties.SessionExpiryInterval > 0 // it is 0
	var out bytes.Buffer
	if err := a.ConnackEncode(&out); err != nil {
		panic("mqtt: " + err.Error()) // the properties are constant
	}
	return out.Bytes()
}

// tooLong reports whether a packet is longer than the client takes.
func (st *session) tooLong(size int) bool { return st.maxPacket > 0 && size > int(st.maxPacket) }

// accept checks a CONNECT and sets the session.
func (s *service) accept(st *session, p *packets.Packet, body []byte, client gate.Credentials, guest bool) code {
	// A version that is not known is answered in the form of version 3.1.1 or, beyond version 5, in that of
	// version 5 (section 3.1.2.2).
	if len(body) < 7 || string(body[:6]) != "\x00\x04MQTT" {
		if len(body) > 9 && string(body[:8]) == "\x00\x06MQIsdp" {
			return unsupportedVersion // MQTT 3.1
		}
		return malformed
	}
	if version := body[6]; version != 4 && version != 5 {
		if version > 5 && version < 0x80 { // bridges of Mosquitto set the highest bit
			p.ProtocolVersion = 5
		}
		return unsupportedVersion
	}
	p.ProtocolVersion = body[6]
	if guest {
		return serverBusy
	}
	if why := decodeConnect(p, body); why != success {
		return why
	}
	c := &p.Connect
	var notName error
	if len(c.Username) > 0 {
		st.gateway, notName = vitals.ParseName(c.Username)
	}
	if c.PasswordFlag && !s.opt.Gate.Open() {
		digest, err := token.DigestOf(c.Password)
		if err != nil {
			digest = token.Digest{} // of no token
		}
		st.digest, st.hasToken = digest, true
	}
	v := st.credentials(client)
	v.Claimed = string(c.Username)
	access, verdict, _ := s.opt.Gate.Authorize(v, token.Write, s.opt.Now())
	switch {
	case verdict == gate.BadCredentials, notName != nil:
		return badCredentials
	case verdict == gate.Limited:
		return quotaExceeded
	case verdict != gate.Allowed:
		return notAuthorized
	}
	if named := *access.Gateway(); !named.IsZero() {
		st.gateway = named
	}
	k := time.Duration(c.Keepalive) * time.Second
	if k == 0 || k > maxKeepAlive {
		k = maxKeepAlive
	}
	st.quiet = k + k/2 // section 3.1.2.10
	st.terse = p.Properties.RequestProblemInfoFlag && p.Properties.RequestProblemInfo == 0
	st.maxPacket = p.Properties.MaximumPacketSize
	st.version = p.ProtocolVersion
	return success
}

// authorize checks the credentials of a connected client again.
func (s *service) authorize(st *session, client gate.Credentials) code {
	switch _, verdict, _ := s.opt.Gate.Authorize(st.credentials(client), token.Write, s.opt.Now()); verdict {
	case gate.Allowed, gate.Limited:
		return success
	}
	return notAuthorized
}

// decodeConnect decodes the body of a CONNECT whose protocol name and version are checked.
func decodeConnect(p *packets.Packet, body []byte) code {
	const variable = 10 // bytes of name, version, flags and keep alive
	end := variable     // of the fields so far
	if len(body) < variable {
		return malformed
	}
	flags := body[7]
	will, password, user := flags&4 != 0, flags&0x40 != 0, flags&0x80 != 0
	switch {
	case flags&1 != 0, flags&0x18 == 0x18, !will && flags&0x38 != 0, password && !user && p.ProtocolVersion == 4:
		return malformed // sections 3.1.2.3 to 3.1.2.9
	}
	// The library neither checks where properties end, nor whether they are repeated, nor that nothing follows.
	why := success
	skip := func() {
		if why == success {
			var n int
			n, why = checkProperties(body[end:])
			end += n
		}
	}
	field := func() {
		n := text(body[end:])
		if n < 0 || n > len(body)-end {
			n, why = 0, cmp.Or(why, malformed)
		}
		end += n
	}
	if p.ProtocolVersion == 5 {
		skip()
	}
	field() // client identifier
	if will {
		if p.ProtocolVersion == 5 {
			skip()
		}
		field() // topic
		field() // payload
	}
	for _, has := range []bool{user, password} {
		if has {
			field()
		}
	}
	switch {
	case why != success:
		return why
	case end != len(body), p.ConnectDecode(body) != nil:
		return malformed
	}
	q := &p.Properties
	switch {
	case user && (!utf8.Valid(p.Connect.Username) || bytes.IndexByte(p.Connect.Username, 0) >= 0):
		return malformed
	case will && (p.Connect.WillTopic == "" || bytes.ContainsAny([]byte(p.Connect.WillTopic), "+#")):
		return malformed
	case q.RequestProblemInfo > 1, q.RequestResponseInfo > 1, q.AuthenticationData != nil && q.AuthenticationMethod == "":
		return protocolError
	case zeroProperty(body, p.ProtocolVersion):
		return protocolError
	case q.AuthenticationMethod != "":
		return badAuthentication
	case p.ProtocolVersion == 4 && p.Connect.ClientIdentifier == "" && !p.Connect.Clean:
		return badIdentifier
	}
	return success
}
