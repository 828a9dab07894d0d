package mqtt

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A publication is a PUBLISH packet. Its bytes belong to the packet.
type publication struct {
	topic, payload []byte
	id             uint16
	qos            byte
}

// recognised returns the publication of a packet that fastparse has recognised.
func recognised(b []byte, p *fastparse.Publish) publication {
	return publication{p.Topic.Of(b), p.Payload.Of(b), p.PacketID, p.QoS}
}

// decodePublish decodes any PUBLISH.
func (st *session) decodePublish(first byte, body []byte) (publication, code) {
	p := packets.Packet{ProtocolVersion: st.version}
	p.FixedHeader.Remaining = len(body)
	if p.FixedHeader.Decode(first) != nil || p.FixedHeader.Qos == 3 {
		return publication{}, malformed
	}
	if st.version == 5 {
		after := text(body) // the topic
		if p.FixedHeader.Qos > 0 {
			after += 2
		}
		if after < 0 || after > len(body) {
			return publication{}, malformed
		}
		if _, why := checkProperties(body[after:]); why != success {
			return publication{}, why
		}
	}
	if p.PublishDecode(body) != nil {
		return publication{}, malformed
	}
	switch {
	case p.FixedHeader.Qos > 0 && p.PacketID == 0, len(p.Properties.SubscriptionIdentifier) > 0,
		p.Properties.PayloadFormat > 1,
		strings.ContainsAny(p.Properties.ResponseTopic, "+#"):
		return publication{}, protocolError
	case p.Properties.TopicAliasFlag:
		return publication{}, topicAliasInvalid // the server announces no aliases
	case p.TopicName == "":
		return publication{}, protocolError
	case strings.ContainsAny(p.TopicName, "+#"):
		return publication{}, badTopic
	case p.FixedHeader.Retain && st.version == 5:
		return publication{}, retainNotSupported
	}
	topic := int(binary.BigEndian.Uint16(body))
	return publication{body[2 : 2+topic], p.Payload, p.PacketID, p.FixedHeader.Qos}, success
}

// delivery returns a publication as a message for the Core.
func (s *service) delivery(st *session, p publication, client gate.Credentials) ingest.Delivery {
	d := ingest.Delivery{From: st.credentials(client), Message: p.payload, Method: method, Route: route,
		Input: wrongTopic{}}
	for i := range s.topics {
		if from, ok := s.topics[i].Topic.Match(p.topic); ok {
			d.Origin, d.Input = from, s.topics[i].Input
			break
		}
	}
	if named := d.Origin.Gateway; !st.gateway.IsZero() {
		d.Origin.Gateway = st.gateway
		if !named.IsZero() && named != st.gateway {
			d.Input = wrongTopic{otherGateway: true}
		}
	}
	return d
}

// A result is what becomes of a publication after its delivery.
type result struct {
	code   code
	reason string // for the client

	// retry means that nothing may be acknowledged: the publication may be stored later.
	retry bool

	// later means that it may be stored later, too, and that the code of version 5 says so.
	later bool
}

// ends reports whether the connection of a publication must end, because an acknowledgement would be taken for one
// of a stored reading. One with QoS 0 is lost.
func (r *result) ends(version, qos byte) bool {
	return r.retry && (qos > 0 || r.code == notAuthorized) || r.later && version != 5 && qos > 0
}

// resultOf returns the result of a publication, and lists what was rejected for good.
func (s *service) resultOf(o *ingest.Outcome) result {
	if o.AllStored() {
		return result{}
	}
	if why, rejected := o.Refusal(); rejected {
		c, retry := s.codeOf(why.Problem)
		if retry {
			return result{code: c, retry: true}
		}
		if why.Field == topicField {
			c = badTopic
		}
		s.list(o, o.Origin().Device, why.Field, cmp.Or(why.Reason, why.Problem.Title()))
		return result{code: c, reason: reasonString(why.Field, cmp.Or(why.Reason, why.Detail, why.Problem.Title()))}
	}
	var r result
	readings, stored, rejected, first := 0, 0, 0, 0
	for one := range o.Results() {
		readings++
		if one.Problem == nil {
			if one.Outcome != 0 {
				stored++
			}
			continue
		}
		c, retry := s.codeOf(one.Problem)
		if retry {
			r.code, r.retry = c, true
			continue
		}
		later := one.Problem == s.opt.Problems.TooManyContradictions && !r.later
		reason := cmp.Or(one.Reason, one.Problem.Title())
		if rejected++; (rejected == 1 || later) && !r.retry { // what may be stored later is not to be given up
			r.code, r.reason = c, reasonString(one.Field, reason)
			first = one.Index
		}
		r.later = r.later || later
		if rejected <= listedPerMessage {
			s.list(o, one.Device, one.Field, reason)
		}
	}
	if r.code == success && (stored == 0 || stored < readings) {
		return result{code: unspecified, retry: true} // it is not known to be stored
	}
	if rejected > 0 && readings > 1 {
		r.reason = "reading " + strconv.Itoa(first) + ": " + r.reason
	}
	if rejected > 1 {
		r.reason += "; " + strconv.Itoa(rejected) + " readings were rejected"
	}
	return r
}

// listedPerMessage bounds the rejections that one message adds to the list.
const listedPerMessage = 100

func reasonString(field, reason string) string {
	if field == "" {
		return reason
	}
	return field + ": " + reason
}

// list adds a rejection to the list. The name of an unknown field is not listed: it comes from the message.
func (s *service) list(o *ingest.Outcome, device vitals.Name, field, reason string) {
	switch _, sign := s.opt.Signs.Named(field); {
	case sign, field == topicField, field == "device", field == "time", field == "gateway":
	default:
		field = ""
	}
	s.opt.Rejections.Add(rejections.Rejection{
		UnixMs: s.opt.Now().UnixMilli(), Input: "mqtt",
		Gateway: o.Origin().Gateway, Device: device, Foreign: !o.Covers(&device), Field: field, Reason: reason,
	})
}

// codeOf returns the code for a problem, and whether the same publication may be stored later: then it must not
// be acknowledged.
func (s *service) codeOf(p *reply.Problem) (c code, retry bool) {
	switch set := s.opt.Problems; p {
	case set.Malformed, set.Invalid, set.TooLarge:
		return badPayload, false
	case set.Forbidden:
		return notAuthorized, false
	case set.Conflict:
		return implementation, false
	case set.TooManyContradictions:
		return quotaExceeded, false
	case set.Unauthorized, set.InvalidCredentials:
		return notAuthorized, true
	case set.TooManyReadings:
		return quotaExceeded, true
	case set.Draining:
		return shuttingDown, true
	case set.Overloaded, set.DiskLow, set.TooManyDevices:
		return serverBusy, true
	}
	return unspecified, true // the store has failed, or is damaged there
}

// Names of publications in traces.
const (
	method = "PUBLISH"
	route  = "mqtt"
)

// status returns the status in terms of HTTP, for traces.
func (r *result) status() int {
	switch {
	case r.retry:
		return http.StatusServiceUnavailable
	case r.code != success:
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// appendAck appends the acknowledgement of a publication: none with QoS 0.
func (st *session) appendAck(dst []byte, id uint16, qos byte, r result) []byte {
	first := byte(typePuback << 4)
	switch qos {
	case 0:
		return dst
	case 2:
		first = typePubrec << 4
	}
	if r.code == success || st.version != 5 {
		return append(dst, first, 2, byte(id>>8), byte(id))
	}
	reason := strings.ToValidUTF8(r.reason[:min(len(r.reason), maxReason)], "")
	const fixed = 2 + 2 + 1 + 1 + 3 // bytes of header, identifier, code, length of properties, reason string
	if st.terse || reason == "" || st.tooLong(fixed+len(reason)) {
		return append(dst, first, 3, byte(id>>8), byte(id), byte(r.code))
	}
	dst = append(dst, first, byte(fixed-2+len(reason)), byte(id>>8), byte(id), byte(r.code), byte(3+len(reason)),
		reasonStringProperty, 0, byte(len(reason)))
	return append(dst, reason...)
}

// maxReason bounds a reason string, so that the lengths of its packet take one byte each.
const maxReason = 110

// newIdentifier returns a client identifier for a client that has none.
func newIdentifier() string { return "pulsegate-" + rand.Text() }
