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

// Patients configures how messages assign devices to the patients that they name.
type Patients struct {
	Assign bool          // assign devices; otherwise patients are only compared with the assignments
	Back   time.Duration // how long before a message arrived an assignment that it makes may begin

	// Record records changes by messages of a client: see Record of [ingest.Intake]. If nil, nothing is recorded.
	Record func(ctx context.Context, client *gate.Access, peer netip.Addr, changes []storage.Assignment,
		failed bool) (recorded int)
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
		return ingest.TooLarge(fmt.Sprintf("A message may have %d bytes.", m.conn.server.opt.MaxBytes))
	}
	if record := m.conn.server.opt.Messages.Patients.Record; record != nil {
		in.Record = func(ctx context.Context, changes []storage.Assignment, failed bool) int {
			return record(ctx, &m.conn.access, m.conn.Client.Peer.PeerAddr(), changes, failed)
		}
	}
	return m.Message.Decode(text, in)
}

// claimOf returns what a message says about who wears its devices, or nil if it has no PID. If PID-3 has no
// identifier, or "", which deletes one, nobody wears them. The error is for the client: the patient is not known, or
// there are several.
func claimOf(m *Message, in *ingest.Intake) (*storage.Claim, error) {
	patient, named, unknown := m.Subject()
	if !named || unknown == errPatients {
		return nil, unknown
	}
	of := &m.opt.Patients
	return &storage.Claim{Subject: patient, Unknown: unknown != nil, Assign: of.Assign,
		SinceUnixMs: in.NowUnixMs - of.Back.Milliseconds()}, unknown
}
