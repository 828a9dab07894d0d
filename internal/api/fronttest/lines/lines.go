// Package lines is the front of a protocol that nobody speaks: a reading per line, and an answer per line. It is the
// example in CONTRIBUTING.md of an input with a listener of its own, and for tests only: TestAddInput of the command
// adds it to a server.
//
// # Promise
//
// A line whose answer is "stored" is on stable storage.
//
// # Not here
//
// Connections: see package front.
package lines

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/vitals"
)

// idleTimeout bounds the time between two lines.
const idleTimeout = time.Minute

// A Server serves the connections of a listener.
type Server struct {
	*front.Server
	metrics.Collector
	opt   front.Options
	input input
}

// Serve serves the connections of l, which it takes ownership of. The caller must call Shutdown.
func Serve(l net.Listener, opt front.Options, signs *vitals.Signs) *Server {
	s := &Server{Server: front.New(&opt), input: input{signs}}
	s.opt = opt // with its defaults
	s.Collector = metrics.Gauge("pulsegate_lines_connections", "Open connections of the listener of lines.",
		opt.Conns.Open)
	s.Server.Serve(l, nil, s.serve)
	return s
}

// serve serves a connection until it ends. A line is no longer than the buffer of the connection.
func (s *Server) serve(c *front.Conn, _ any) {
	for !c.Guest() {
		c.Await(http.StateIdle, idleTimeout)
		if _, err := c.In.Peek(1); err != nil {
			return
		}
		c.Await(http.StateActive, s.opt.ReadTimeout)
		line, err := c.In.ReadSlice('\n')
		if err != nil {
			return
		}
		d := ingest.Delivery{From: c.Client, Input: s.input, Message: line, Method: "LINE", Route: "lines"}
		var text string
		s.Hold.Receive(s.Waiting, &d, func(o *ingest.Outcome) { text = answer(o) })
		c.Send([]byte(text + "\n")) // after an error, what has arrived is stored, without further answers
	}
}

// answer returns the answer to a line.
func answer(o *ingest.Outcome) string {
	if why, rejected := o.Refusal(); rejected {
		return "rejected: " + why.Problem.Title()
	}
	if o.AllStored() {
		return "stored"
	}
	text := "rejected"
	for r := range o.Results() {
		text += ": " + r.Field + " " + r.Reason
	}
	return text
}

type input struct{ signs *vitals.Signs }

// Decode implements [ingest.Input] for a line: the device, the time in Unix milliseconds, and a sign with its value.
func (i input) Decode(line []byte, in *ingest.Intake) error {
	words := bytes.Fields(line)
	if len(words) != 3 {
		return ingest.Malformed("A line is DEVICE TIME SIGN=VALUE.")
	}
	r, field, err := i.reading(words)
	if err == nil {
		if broken := in.Rules.Validate(&r, in.NowUnixMs); broken != nil {
			why := broken.(*vitals.FieldError)
			field, err = why.Field, why.Err
		}
	}
	if err != nil {
		in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Field: field, Err: err})
		return nil
	}
	in.Batch.Readings = append(in.Batch.Readings, r)
	in.Batch.Index = append(in.Batch.Index, 0)
	return nil
}

// reading returns the reading of a line, or the field that is wrong.
func (i input) reading(words [][]byte) (r vitals.Reading, field string, err error) {
	if r.Device, err = vitals.ParseName(words[0]); err != nil {
		return r, "device", err
	}
	if r.TimeUnixMs, err = strconv.ParseInt(string(words[1]), 10, 64); err != nil {
		return r, "time", vitals.ErrNumber
	}
	name, value, _ := bytes.Cut(words[2], []byte("="))
	sign, known := i.signs.Named(string(name))
	if !known {
		return r, "", vitals.ErrUnknownField
	}
	v, err := i.signs.Of(sign).Parse(value)
	r.Values.Set(sign, v)
	return r, i.signs.Field(sign), err
}
