package sim

import (
	"bytes"
	"strconv"

	"github.com/klauspost/compress/gzip"
)

// maxForwards bounds the requests that wait for their second gateway.
const maxForwards = 16

// A composer composes the requests of a run and encodes them.
type composer struct {
	fleet    *Fleet
	heads    [2][]byte // request headers, without and with gzip
	version  byte      // of MQTT
	qos      byte
	counts   map[string]uint64 // requests by behaviour
	forwards []forward
	plain    []byte // buffer for a body
	topic    []byte // buffer
	gzip     *gzip.Writer
	packed   bytes.Buffer // compressed body
}

// A forward is a request of one gateway that another one will repeat.
type forward struct {
	from    int32
	samples []sample
}

// compose composes the connection's next request.
func (k *composer) compose(c *connection) {
	q := &c.request
	if !k.takeForward(c) {
		k.fleet.compose(c.gateway, q)
		k.count(q)
		if q.forwarded && len(k.forwards) < maxForwards {
			k.forwards = append(k.forwards, forward{q.gateway, append([]sample(nil), q.samples...)})
		}
	}
	k.encode(c)
}

// takeForward lets the connection's gateway repeat the readings of another one. It
// reports whether it did.
func (k *composer) takeForward(c *connection) bool {
	last := len(k.forwards) - 1
	if last < 0 || k.forwards[last].from == c.gateway.number {
		return false
	}
	g, q := c.gateway, &c.request
	*q = request{gateway: g.number, gzip: g.gzips, lines: g.lines,
		samples: append(q.samples[:0], k.forwards[last].samples...)}
	if len(q.samples) > 1 {
		q.kind = batchRequest
	}
	k.forwards = k.forwards[:last]
	k.counts[Forward.String()]++
	return true
}

// count counts the behaviours in a request.
func (k *composer) count(q *request) {
	b := k.counts
	switch {
	case q.kind == malformedRequest:
		b[Malformed.String()]++
	case q.buffered:
		b[Buffering.String()]++
	case q.kind == batchRequest:
		b[Batching.String()]++
	}
	if q.gzip {
		b[Gzip.String()]++
	}
	if q.reordered {
		b[Reorder.String()]++
	}
}

// encode writes the request to c.out.
func (k *composer) encode(c *connection) {
	if k.fleet.mllp {
		c.out = k.fleet.appendMessage(c.out[:0], &c.request, c.number)
		return
	}
	head := k.heads[0]
	k.plain = k.fleet.appendBody(k.plain[:0], &c.request)
	body := k.plain
	if k.fleet.inTopic {
		k.topic = k.fleet.appendDevice(append(k.topic[:0], "pulsegate/"...), c.request.samples[0].device)
		c.out = appendPublish(c.out[:0], k.version, k.qos, c.id, k.topic, body)
		return
	}
	if c.request.gzip {
		head = k.heads[1]
		k.packed.Reset()
		if k.gzip == nil {
			k.gzip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for unknown levels
		}
		k.gzip.Reset(&k.packed)
		_, _ = k.gzip.Write(body) // a Buffer returns no errors
		_ = k.gzip.Close()
		body = k.packed.Bytes()
	}
	c.out = strconv.AppendInt(append(c.out[:0], head...), int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
}
