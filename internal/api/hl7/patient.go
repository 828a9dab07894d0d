package hl7

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// Patients configure how messages assign devices to the patients whom they name.
type Patients struct {
	Assign bool          // assign devices; otherwise patients are only compared with the assignments
	Back   time.Duration // how long before a message arrived an assignment that it makes may begin

	// Record records changes that messages of a client are about to make, or that have failed, as [ingest.Intake.Record] says. nil means
	// that nothing is recorded.
	Record func(ctx context.Context, client *gate.Access, peer netip.Addr, changes []storage.Assignment, failed bool) (recorded int)
}

// A message is a Message of a connection.
type message struct {
	*Message
	conn     *conn
	tooLarge bool // it is only the beginning
	outcome  *ingest.Outcome
	listed   int
}

func newMessage(c *conn, text []byte, tooLarge bool) *message {
	m := &message{conn: c, tooLarge: tooLarge}
	opt := c.server.opt.Messages
	opt.OnRejected = m.list
	m.Message = Parse(text, &opt)
	return m
}

// Decode implements [ingest.Input]. A message that is held is decoded again.
func (m *message) Decode(text []byte, in *ingest.Intake) error {
	if m.tooLarge {
		return ingest.TooLarge(fmt.Sprintf("A message may have %d bytes.", m.conn.server.opt.MaxMessageBytes))
	}
	if record := m.conn.server.opt.Messages.Patients.Record; record != nil {
		in.Record = func(ctx context.Context, changes []storage.Assignment, failed bool) int {
			return record(ctx, &m.conn.access, m.conn.client.Peer.PeerAddr(), changes, failed)
		}
	}
	return m.Message.Decode(text, in)
}

// claimOf returns what a message says about who wears its devices, or nil if it has no PID. The error is for the client: it is not known
// who the patient is, or there are several. PID-3 without an identifier, or with "", which deletes one, says that nobody does.
func claimOf(m *Message, in *ingest.Intake) (*storage.Claim, error) {
	patient, named, unknown := m.Subject()
	if !named || unknown == errPatients {
		return nil, unknown
	}
	of := &m.opt.Patients
	return &storage.Claim{Subject: patient, Unknown: unknown != nil, Assign: of.Assign, SinceUnixMs: in.NowUnixMs - of.Back.Milliseconds()}, unknown
}
