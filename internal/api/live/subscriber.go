package live

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	// maxPending is the number of devices whose events wait for one subscriber. If there
	// are more, it reads the latest readings from the store instead.
	maxPending = 512

	// eventsPerWrite is the largest number of events that are written with one deadline.
	eventsPerWrite = 64

	// maxWalking is the number of handlers that read a page of latest readings at the same
	// time. After a restart, all clients resume.
	maxWalking = 2

	// commentEvery is the interval of the comments, by which clients and proxies see that
	// the stream is alive, and by which the server notices that a client is not. An event
	// comes with each, because browsers do not show comments to scripts.
	commentEvery = 5 * time.Second
)

// A subscriber is one stream. Its methods are called by its handler, unless stated
// otherwise.
type subscriber struct {
	hub    *Hub
	want   selection
	req    *http.Request
	holder *share.Holder
	since  uint64 // identifier of the last event before the stream
	stream stream
	queue  queue // guarded by Hub.mu

	recorded bool     // the audit log has a record of this stream
	texts    [][]byte // events of the current write; never modified
}

// take moves the oldest pending events into s.texts. resume reports that the latest readings
// must be read instead.
func (s *subscriber) take() (dropped uint64, resume bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	clear(s.texts)
	s.texts, dropped, resume = s.queue.takeLocked(s.texts[:0])
	return dropped, resume
}

// checkAccess ends the stream if the client may no longer read. It is called by the
// dispatcher, and before each write.
func (s *subscriber) checkAccess() bool {
	access, verdict := s.hub.opt.May(s.req, token.Read)
	allowed := verdict == gate.Allowed
	for i := 0; allowed && i < len(s.want.devices); i++ {
		allowed = access.Covers(&s.want.devices[i])
	}
	if !allowed {
		s.stream.end(errRevoked)
		return false
	}
	s.hub.mu.Lock()
	s.queue.access = access
	s.hub.mu.Unlock()
	return true
}

// currentAccess returns what the client may read.
func (s *subscriber) currentAccess() gate.Access {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.queue.access
}

// run writes the stream until the client disconnects or the stream is ended.
func (s *subscriber) run(ctx context.Context) error {
	comments := time.NewTicker(commentEvery)
	defer comments.Stop()
	for {
		dropped, resume := s.take()
		if dropped > 0 {
			if err := s.write(fmt.Appendf(nil, "event: dropped\ndata: {\"count\":%d}\n\n", dropped)); err != nil {
				return err
			}
		}
		switch {
		case resume:
			if err := s.walk(ctx); err != nil {
				return err
			}
			continue
		case len(s.texts) > 0:
			if err := s.writeEvents(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.stream.wake:
			if err := s.stream.endedWith(); err != nil {
				return err
			}
		case <-comments.C:
			if err := s.write(appendTime([]byte(":\n"))); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// appendTime appends the event with the server's time, by which a client corrects its clock.
func appendTime(dst []byte) []byte {
	dst = vitals.AppendTime(append(dst, "event: time\ndata: {\"time\":\""...), time.Now().UnixMilli())
	return append(dst, "\"}\n\n"...)
}

// writeEvents writes s.texts, which are in s.queue.writing.
func (s *subscriber) writeEvents() error {
	if err := s.record(len(s.texts)); err != nil {
		return err
	}
	err := s.write(s.texts...)
	if err == nil {
		s.hub.events.Add(uint64(len(s.texts)))
	}
	return err
}

// record counts n readings as read. If the client has read many, the stream is an export,
// and must be recorded in the audit log before it continues.
func (s *subscriber) record(n int) error {
	access := s.currentAccess()
	if s.recorded || s.hub.opt.Gate.TakeReads(&access, n, time.Now()) {
		return nil
	}
	var e gate.Export
	if len(s.want.devices) == 1 {
		e.Device = s.want.devices[0]
	}
	if err := s.hub.opt.Record(s.req, &access, e, time.Now().UnixMilli(), storage.OpenEnd); err != nil {
		s.hub.report(err)
		return err
	}
	s.recorded = true
	return nil
}

// write writes texts, with a deadline.
func (s *subscriber) write(texts ...[]byte) error {
	if !s.hub.opt.Gate.Open() {
		s.checkAccess()
	}
	return s.stream.write(texts)
}

// walk writes the latest reading of every selected device. Events of what is stored
// during the walk follow.
func (s *subscriber) walk(ctx context.Context) error {
	names := s.want.devices
	next := s.want.prefix
	access := s.currentAccess()
	before := access.Before()
	byPrefix := len(names) == 0
	if byPrefix && !next.IsZero() {
		names = []vitals.Name{next} // the device whose name is the prefix; those after it follow
	}
	if byPrefix && next.Compare(&before) < 0 {
		next = before
	}
	for {
		for len(names) > 0 {
			n := min(len(names), eventsPerWrite)
			if err := s.readLatest(ctx, names[:n]); err != nil {
				return err
			}
			if len(s.texts) > 0 {
				if err := s.writeEvents(); err != nil {
					return err
				}
			}
			names = names[n:]
		}
		if !byPrefix {
			return nil
		}
		page := make([]storage.Device, eventsPerWrite)
		n, err := s.page(ctx, next, page)
		if err != nil {
			return err
		}
		for i := range page[:n] {
			d := &page[i].Name
			if !d.HasPrefix(&s.want.prefix) || !access.Covers(d) {
				n = i // the names are in order: no further one is selected
				break
			}
			names = append(names, *d)
		}
		if n == 0 {
			return nil
		}
		next = page[n-1].Name
	}
}

// page reads a page of devices.
func (s *subscriber) page(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error) {
	s.hub.walking <- struct{}{}
	defer func() { <-s.hub.walking }()
	n, err := s.hub.reader.Devices(ctx, after, dst)
	if err != nil {
		s.hub.report(err)
	}
	return n, err
}

// readLatest reads the newest readings of devices into s.texts. It reads them again if a
// device was erased during the read.
func (s *subscriber) readLatest(ctx context.Context, devices []vitals.Name) error {
	h := s.hub
	h.walking <- struct{}{}
	defer func() { <-h.walking }()
	for {
		h.mu.Lock()
		erasures, id, access := h.board.erasures, h.board.lastID, s.queue.access
		s.queue.writing = s.queue.writing[:0]
		h.mu.Unlock()
		clear(s.texts)
		s.texts = s.texts[:0]
		var of []latest
		for i := range devices {
			if !access.Covers(&devices[i]) {
				continue
			}
			n, err := h.newest(ctx, devices[i])
			if err != nil {
				return err
			}
			if n.found {
				of = append(of, n)
			}
		}
		worn, err := h.wornAt(ctx, of)
		if err != nil {
			return err
		}
		for i := range of {
			s.texts = append(s.texts, h.board.appendEvent(nil, id, &of[i], worn[i].Subject))
		}
		h.mu.Lock()
		same := h.board.erasures == erasures
		if same {
			s.queue.writing = append(s.queue.writing, devices...)
		}
		h.mu.Unlock()
		if same {
			return nil
		}
	}
}
