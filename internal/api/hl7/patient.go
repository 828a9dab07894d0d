package hl7

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Patients are the assignments of devices to patients.
type Patients struct {
	// Of returns the assignments of a device.
	Of func(ctx context.Context, device vitals.Name) ([]storage.Assignment, error)

	// Assign assigns a device as a gateway has asked, whose name is zero if it is not known. nil means that gateways
	// assign no devices.
	Assign func(ctx context.Context, a storage.Assignment, gateway vitals.Name, peer netip.Addr) error
}

var (
	errOtherPatient    = &rule{valueNotFound, "not the patient to whom the device was assigned at that time"}
	errManyAssignments = &rule{valueNotFound, "the device has as many assignments as it may have"}
)

// A message is a Message of a connection.
type message struct {
	*Message
	conn     *conn
	tooLarge bool // it is only the beginning
	outcome  *ingest.Outcome
	listed   int

	// The assignments of the device of the last reading.
	device      vitals.Name
	assignments []storage.Assignment

	unavailable bool // the assignments could be neither read nor changed
}

func newMessage(c *conn, text []byte, tooLarge bool) *message {
	m := &message{conn: c, tooLarge: tooLarge}
	opt := c.server.opt.Messages
	opt.Assign, opt.OnRejected = m.assign, m.list
	m.Message = Parse(text, &opt)
	return m
}

// Decode implements [ingest.Input]. A message that is held is decoded again.
func (m *message) Decode(text []byte, in *ingest.Intake) error {
	m.device, m.unavailable = vitals.Name{}, false
	if m.tooLarge {
		return ingest.TooLarge(fmt.Sprintf("A message may have %d bytes.", m.conn.server.opt.MaxMessageBytes))
	}
	err := m.Message.Decode(text, in)
	if m.unavailable {
		return ingest.Unavailable()
	}
	return err
}

// assign checks that a reading is of the patient to whom its device was assigned at the time. If the device was
// assigned to nobody, it assigns it.
func (m *message) assign(in *ingest.Intake, r *vitals.Reading, patient storage.Subject, unknown error) error {
	if m.unavailable {
		return nil // nothing is stored
	}
	patients, ctx := &m.conn.server.opt.Patients, m.conn.server.conns.Waiting
	for range assignTries {
		if r.Device != m.device {
			all, err := patients.Of(ctx, r.Device)
			if err != nil {
				m.unavailable = true
				return nil
			}
			m.device, m.assignments = r.Device, all
		}
		switch known := storage.SubjectAt(m.assignments, r.TimeUnixMs); {
		case known == "" && patients.Assign == nil, known != "" && known == patient:
			return nil
		case unknown != nil && (known == "" || unknown != errPatient):
			return unknown
		case known != "":
			return errOtherPatient
		}
		err := patients.Assign(ctx, m.newAssignment(in, r, patient), m.conn.gateway, m.conn.client.Peer.PeerAddr())
		m.device = vitals.Name{} // read its assignments again
		switch {
		case err == nil:
			return nil
		case errors.Is(err, storage.ErrTooManyAssignments), errors.Is(err, storage.ErrPeriod):
			return errManyAssignments
		case !errors.Is(err, storage.ErrAssigned): // another client may have assigned the device meanwhile
			m.unavailable = true
			return nil
		}
	}
	m.unavailable = true
	return nil
}

// assignTries bounds how often a device is assigned that others assign at the same time.
const assignTries = 3

// newAssignment returns an assignment of the device of a reading to a patient: from the time of the first reading of the
// device in the message, between the other assignments of the device.
func (m *message) newAssignment(in *ingest.Intake, r *vitals.Reading, patient storage.Subject) storage.Assignment {
	a := storage.Assignment{Device: r.Device, Subject: patient, FromUnixMs: r.TimeUnixMs, ToUnixMs: storage.OpenEnd}
	after := int64(0)
	for _, other := range m.assignments {
		if other.ToUnixMs <= r.TimeUnixMs {
			after = max(after, other.ToUnixMs)
		} else {
			a.ToUnixMs = min(a.ToUnixMs, other.FromUnixMs)
		}
	}
	for i := range m.places {
		p := &m.places[i]
		if p.err == nil && p.reading.Device == r.Device && p.reading.TimeUnixMs >= after && in.Rules.Validate(&p.reading, in.NowUnixMs) == nil {
			a.FromUnixMs = min(a.FromUnixMs, p.reading.TimeUnixMs)
		}
	}
	return a
}
