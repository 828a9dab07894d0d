package query

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// ChangesPath is the address of changes.
const ChangesPath = "/v1/changes"

// Bounds of requests for changes.
const (
	MaxWait    = 60 * time.Second // largest value of wait
	MaxWaiting = 2048             // requests that wait, and streams, at the same time

	heartbeatEvery = 15 * time.Second
	emptyFor       = 10 * time.Second // how long an answer looks for changes that are selected
	waitingPage    = 256              // changes that a request reads at once, if it waits or is a stream
	maxSubjectBody = 1 << 10
)

// A Feed serves what has changed in a store, as [storage.NextChanges] returns it.
//
// A request for changes reads until it has caught up, or its limit is reached. With wait it then waits for the
// first change, and a stream continues. The store wakes all waiting requests together, and decodes what is new
// once for them. What the client may see is decided again for each page.
type Feed struct {
	h       *Handler
	store   storage.Changes
	waiting *Bound        // of requests that wait
	reading chan struct{} // holds one for each request that reads a page: all wake at the same time
	stop    chan struct{} // closed by Drain

	// Drain ends all waits and streams.
	Drain func()
}

// NewFeed returns a Feed of the handler's store. If changes is nil, the store keeps none, and requests are answered so.
func NewFeed(h *Handler, changes storage.Changes) *Feed {
	f := &Feed{h: h, store: changes, waiting: NewBoundOf(MaxWaiting, share.Streams), reading: make(chan struct{}, 4),
		stop: make(chan struct{})}
	f.Drain = sync.OnceFunc(func() { close(f.stop) })
	return f
}

// Waiting returns the number of requests that may wait, and of streams.
func (f *Feed) Waiting() int64 { return f.waiting.Taken() }

// A feedFormat is a format of changes.
type feedFormat int

const (
	feedJSON    = feedFormat(JSON)
	feedLines   = feedFormat(NDJSON)
	feedCSV     = feedFormat(CSV)
	feedParquet = feedFormat(Parquet)
	feedEvents  = feedParquet + 1 // Server-Sent Events
)

// FeedFormats are the names of the formats of changes. It is never modified.
var FeedFormats = []string{feedJSON: "json", feedLines: "ndjson", feedCSV: "csv", feedParquet: "parquet",
	feedEvents: "sse"}

// A feedQuery is a request for changes.
type feedQuery struct {
	filter  storage.ChangeFilter // without what the token covers
	device  vitals.Name          // zero means all
	subject storage.Subject      // of a POST; empty means none
	cursor  storage.ChangeCursor
	wait    time.Duration
	limit   int
	format  feedFormat
	end     string // what an answer that has caught up ends with; "" means nothing
	list    list
	sealed  cipher.AEAD // encrypts cursors
}

// waits reports whether a request may take long without reading.
func (q *feedQuery) waits() bool { return q.wait > 0 || q.format == feedEvents }

// next returns the cursor of what follows. It is encrypted, because it may name a device that the token does not cover.
// It stands in addresses, so a checksum of the subject, which can be guessed, is encrypted too.
func (q *feedQuery) next() string {
	text := q.cursor.AppendTo(q.ofSubject())
	return base64.RawURLEncoding.EncodeToString(q.sealed.Seal(q.list[:], nil, text, q.list[:]))
}

// ofSubject returns what the encrypted part of a cursor begins with.
func (q *feedQuery) ofSubject() []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(q.subject)))
}

// open sets the cursor of q to what next returned. The error wraps [storage.ErrUnknownPosition] if it is a cursor of
// another store, or is damaged, and is errCursor if it is not one of q's parameters.
func (q *feedQuery) open(text string) error {
	key, err := q.list.decode(text)
	if err != nil {
		return err
	}
	if key, err = q.sealed.Open(nil, nil, key, q.list[:]); err != nil {
		return storage.ErrUnknownPosition
	}
	key, ok := bytes.CutPrefix(key, q.ofSubject())
	if !ok {
		return errCursor
	}
	q.cursor, err = storage.ParseChangeCursor(key)
	return err
}

// ServeHTTP serves GET and HEAD, and for one patient POST, of /v1/changes. Parameters: after (next of the answer
// before) or start (oldest, now, or a time), wait, limit, device or prefix, signs (fields with commas between them),
// format, end.
func (f *Feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := &f.h.opt
	access, verdict := o.May(r, token.ReadSubjects)
	if o.Refuse(w, r, verdict, "A token with the read right is needed.") {
		return
	}
	if f.store == nil {
		o.Problems.NotKept.Write(w, r, "")
		return
	}
	w.Header().Add("Vary", "Accept")
	q, err := f.parse(w, r)
	switch {
	case errors.Is(err, errSubjectBody):
		o.Problems.Malformed.Write(w, r, malformedSubject)
		return
	case err != nil:
		o.Fail(w, r, err)
		return
	case q.format != feedJSON && !r.ProtoAtLeast(1, 1): // the text of JSON shows its end
		o.Problems.OldHTTP.Write(w, r, "")
		return
	case q.subject != "" && !access.CoversSubject(string(q.subject)):
		o.Gate.NotCovered(&access, gate.PeerOf(r))
		o.Problems.Forbidden.Write(w, r, "The token is not for this subject.")
		return
	}
	bound := o.Bound
	if q.waits() {
		bound = f.waiting
	}
	leave, ok := o.Enter(w, r, &access, bound)
	if !ok {
		return
	}
	defer leave()
	if q.format == feedParquet {
		leaveParquet, ok := o.Enter(w, r, &access, f.h.parquet)
		if !ok {
			return
		}
		defer leaveParquet()
	}
	a := &feedAnswer{f: f, w: w, r: r, q: q, text: newChangeText(f.store.Signs())}
	if q.format != feedEvents {
		a.coding = Format(q.format).coding(w, r)
	}
	if r.Method == http.MethodHead {
		_ = a.begin()
		return
	}
	o.Stream(w, func() bool { _, err := a.allowed(); return err == nil }, a.begin, a.write,
		func(err error) { o.Fail(w, r, err) })
}

// errSubjectBody means that the body of a POST does not name a subject. malformedSubject says so in the answer.
var errSubjectBody = errors.New("the body names no subject")

const malformedSubject = "The body must be an object with the member subject."

// parse parses a request.
func (f *Feed) parse(w http.ResponseWriter, r *http.Request) (*feedQuery, error) {
	p, q := ReadParams(r.URL.RawQuery, nil, "after", "start", "wait", "limit", "device", "prefix", "signs", "format",
		"end"), &feedQuery{}
	if r.Method == http.MethodPost {
		named, err := readSubject(w, r, false)
		if err != nil {
			return nil, err
		}
		q.subject = storage.Subject(named.Subject)
	}
	q.filter.Prefix, q.device = p.Name("prefix"), p.Name("device")
	if p.Count("prefix") > 0 && p.Count("device") > 0 {
		p.fail("prefix", "not allowed together with device")
	}
	signs, _ := p.get("signs")
	q.filter.Signs = p.signs(signs, f.store.Signs())
	q.format = feedFormat(p.choice("format", int(acceptedFeed(r.Header["Accept"])), FeedFormats...))
	fallback := math.MaxInt
	if q.format == feedJSON {
		fallback = DefaultReadings
	}
	q.limit = p.Limit(fallback, MaxReadings)
	for _, name := range []string{"limit", "end"} {
		if q.format == feedEvents && p.Count(name) > 0 {
			p.fail(name, "not with the format sse, which does not end")
		}
	}
	q.end = p.end(Format(q.format))
	q.wait = p.wait()
	with := []string{q.filter.Prefix.String(), signs}
	if !q.device.IsZero() {
		q.filter.Prefix, with = q.device, append(with, q.device.String())
	}
	q.list = newList(cursorChanges, with...)
	key, err := f.store.CursorKey(r.Context())
	if err == nil {
		q.sealed, err = newSealed(key)
	}
	if err != nil {
		return nil, err
	}
	return q, f.position(r, p, q)
}

// newSealed returns the encryption of cursors with a key.
func newSealed(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// position sets the cursor of a request from its parameters after and start.
func (f *Feed) position(r *http.Request, p *Params, q *feedQuery) error {
	after, continued := p.get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" && q.format == feedEvents {
		after, continued = last, true
	}
	start, started := p.get("start")
	if start == "oldest" {
		start = ""
	}
	switch {
	case p.Err != nil:
	case continued && started && p.values.Has("after"):
		p.fail("start", "not together with after")
	case continued:
		if err := q.open(after); errors.Is(err, storage.ErrUnknownPosition) {
			return err
		} else if err != nil {
			p.fail("after", errCursor.Error()+" with this device or prefix, signs and subject")
		}
	case start == "now":
		now, _, err := f.store.Position(r.Context())
		q.cursor.From = now
		return err
	case start != "":
		unixMs := f.h.times(p).param(p, "start", 0)
		if p.Err != nil {
			break
		}
		from, err := f.store.PositionAt(r.Context(), unixMs)
		q.cursor.From = from
		return err
	}
	return p.Err
}

// signs returns the signs of a list of fields with commas between them.
func (p *Params) signs(text string, all *vitals.Signs) (signs uint32) {
	if text == "" {
		return 0
	}
	for field := range strings.SplitSeq(text, ",") {
		s, ok := all.Named(field)
		if !ok {
			p.fail("signs", "not fields of signs with commas between them")
			return 0
		}
		signs |= 1 << s
	}
	return signs
}

// wait returns the parameter wait.
func (p *Params) wait() time.Duration {
	text, ok := p.get("wait")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxWait {
		p.fail("wait", fmt.Sprintf("not a duration of up to %ds, such as 30s", int(MaxWait.Seconds())))
		return 0
	}
	return d
}

// A subjectBody is the body of a request about a subject.
type subjectBody struct {
	Subject string  `json:"subject"`
	Cursor  *string `json:"cursor"` // of a further page; nil means the first
}

// readSubject reads the body of a POST. Only if it is paged may it have a cursor.
func readSubject(w http.ResponseWriter, r *http.Request, paged bool) (named subjectBody, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSubjectBody))
	if err == nil {
		err = json.Unmarshal(body, &named, json.RejectUnknownMembers(true))
	}
	_, subjectErr := storage.ParseSubject(named.Subject)
	if err != nil || subjectErr != nil || named.Cursor != nil && !paged {
		return named, errSubjectBody
	}
	return named, nil
}

// acceptedFeed returns the format that an Accept header prefers, or JSON.
func acceptedFeed(accept []string) feedFormat {
	if slices.ContainsFunc(accept, func(s string) bool { return strings.HasPrefix(s, "text/event-stream") }) {
		return feedEvents
	}
	format, _ := negotiate(accept, OMH)
	return feedFormat(format)
}

// A feedAnswer is the answer to a request for changes.
type feedAnswer struct {
	f        *Feed
	w        http.ResponseWriter
	r        *http.Request
	q        *feedQuery
	coding   string // content coding
	text     *changeText
	table    *changeTable // of CSV and Parquet
	buffer   []byte
	written  int  // changes
	recorded bool // the audit log has a record of the request
	stale    bool // the table has no column for a sign of what follows
}

// allowed returns what the client may see now, or ErrRevoked.
func (a *feedAnswer) allowed() (gate.Access, error) {
	access, verdict := a.f.h.opt.May(a.r, token.ReadSubjects)
	if verdict != gate.Allowed || a.q.subject != "" && !access.CoversSubject(string(a.q.subject)) {
		return access, ErrRevoked
	}
	return access, nil
}

// filter returns what the client selects of what it may see.
func (a *feedAnswer) filter(access *gate.Access) *storage.ChangeFilter {
	f := a.q.filter
	if !access.BoundToSubjects() {
		f.Device = access.Covers
	} else {
		f.Subject = func(s storage.Subject) bool { return s != "" && access.CoversSubject(string(s)) }
	}
	if of := a.q.subject; of != "" {
		f.Subject = func(s storage.Subject) bool { return s == of }
	}
	if covered, only := f.Device, a.q.device; !only.IsZero() {
		f.Device = func(n *vitals.Name) bool { return *n == only && (covered == nil || covered(n)) }
	}
	return &f
}

// begin sends the header.
func (a *feedAnswer) begin() error {
	if a.q.format == feedEvents {
		BeginEvents(a.w, a.r)
		return nil
	}
	if a.coding != "" {
		a.w.Header().Set("Content-Encoding", a.coding)
	}
	if a.q.format == feedCSV || a.q.format == feedParquet {
		a.w.Header().Set("Trailer", cursorTrailer+", "+caughtUpTrailer)
	}
	a.f.h.streams[a.q.format].Begin(a.w)
	return nil
}

// caughtUpTrailer is the trailer with caught_up of an answer in CSV or Parquet.
const caughtUpTrailer = "Pulsegate-Caught-Up"

// write writes the body.
func (a *feedAnswer) write(out io.Writer) error {
	if a.coding == "" {
		return a.writeChanges(out)
	}
	coder, err := newCoder(out, a.coding)
	if err == nil {
		err = a.writeChanges(coder)
	}
	if err == nil {
		err = coder.Close()
	}
	return err
}

func (a *feedAnswer) writeChanges(out io.Writer) error {
	switch a.q.format {
	case feedJSON:
		a.buffer = append(a.buffer, `{"changes":[`...)
	case feedCSV:
		a.table = newChangeTable(a.q.format, a.text, nil)
		a.buffer = a.table.appendHead(a.buffer)
	case feedParquet:
		a.table = newChangeTable(a.q.format, a.text, out)
	case feedEvents:
		a.buffer = append(a.buffer, ":\n\n"...) // sent after the position was found known
	}
	ctx, caughtUp, told := context.WithoutCancel(a.r.Context()), false, false
	for begun, end := time.Now(), time.Now().Add(a.q.wait); ; {
		_, later, err := a.f.store.Position(ctx) // before the changes
		if err != nil {
			return err
		}
		n := 0
		if n, caughtUp, err = a.page(ctx, out); err != nil {
			if told && errors.Is(err, storage.ErrUnknownPosition) { // a client that connects again is answered so
				return nil
			}
			return err
		}
		if n == 0 && !caughtUp && (a.stale || a.ends(begun)) {
			break
		}
		if a.q.format == feedEvents {
			if n > 0 || caughtUp && !told {
				told = caughtUp
				if err := a.tell(out, caughtUp); err != nil {
					return err
				}
			}
		} else if a.written >= a.q.limit || caughtUp && (a.written > 0 || !time.Now().Before(end)) {
			break
		}
		if caughtUp {
			ended, err := a.await(out, later, end)
			if err != nil {
				return err
			}
			if ended {
				break
			}
		}
	}
	return a.end(out, caughtUp)
}

// ends reports whether an answer ends although no change was selected yet: the server stops, the client is gone, or
// has waited for emptyFor.
func (a *feedAnswer) ends(begun time.Time) bool {
	select {
	case <-a.f.stop:
		return true
	case <-a.r.Context().Done():
		return true
	default:
		return a.q.format != feedEvents && time.Since(begun) > emptyFor
	}
}

// page reads a page and writes it.
func (a *feedAnswer) page(ctx context.Context, out io.Writer) (n int, caughtUp bool, err error) {
	most := chunkRecords
	if a.q.waits() {
		most = waitingPage
	}
	access, err := a.allowed()
	if err != nil {
		return 0, false, err
	}
	before := a.q.cursor
	changes, caughtUp, err := a.read(ctx, &access, min(most, a.q.limit-a.written))
	if err == nil && a.table != nil && !a.table.has(changes) {
		a.q.cursor, a.stale = before, true
		return 0, false, nil
	}
	if err == nil {
		err = a.record(&access, changes)
	}
	if err != nil {
		return 0, false, err
	}
	for i := range changes {
		if err := a.change(&changes[i]); err != nil {
			return 0, false, err
		}
		if err := a.flush(out, flushBytes); err != nil {
			return 0, false, err
		}
	}
	return len(changes), caughtUp, nil
}

// read reads at most most changes, and none if the server stops.
func (a *feedAnswer) read(ctx context.Context, access *gate.Access, most int) ([]storage.Change, bool, error) {
	select {
	case a.f.reading <- struct{}{}:
	case <-a.f.stop:
		return nil, false, nil
	case <-a.r.Context().Done():
		return nil, false, ErrClientGone
	}
	defer func() { <-a.f.reading }()
	return storage.NextChanges(ctx, a.f.store, &a.q.cursor, a.filter(access), most)
}

// change appends a change to the buffer, or writes it to a file of Parquet.
func (a *feedAnswer) change(c *storage.Change) (err error) {
	a.written++
	if a.table != nil {
		a.buffer, err = a.table.add(a.buffer, c)
		return err
	}
	switch {
	case a.q.format == feedEvents:
		a.buffer = append(a.buffer, "data: "...)
	case a.q.format == feedJSON && a.written > 1:
		a.buffer = append(a.buffer, ",\n"...)
	case a.q.format == feedJSON:
		a.buffer = append(a.buffer, '\n')
	}
	a.buffer = a.text.append(a.buffer, c)
	switch a.q.format {
	case feedLines:
		a.buffer = append(a.buffer, '\n')
	case feedEvents:
		a.buffer = append(a.buffer, "\n\n"...)
	}
	return nil
}

// record counts readings, and what says that somebody wore a device, as read. If the client has read many, the answer
// is an export, and must be recorded in the audit log before it continues.
func (a *feedAnswer) record(access *gate.Access, changes []storage.Change) error {
	n := 0
	for i := range changes {
		if !changes[i].Device.IsZero() {
			n++
		}
	}
	o := &a.f.h.opt
	if a.recorded || n == 0 || o.Gate.TakeReads(access, n, time.Now()) {
		return nil
	}
	if err := o.Record(a.r, access, gate.Export{Device: a.q.device, Subject: string(a.q.subject)}, 0,
		storage.OpenEnd); err != nil {
		return err
	}
	a.recorded = true
	return nil
}

// appendState appends the members next, caught_up and, unless a copy is made, behind_ms.
func (a *feedAnswer) appendState(dst []byte, caughtUp bool) []byte {
	dst = append(append(append(dst, `"next":"`...), a.q.next()...), `","caught_up":`...)
	dst = strconv.AppendBool(dst, caughtUp)
	if from := a.q.cursor.From; caughtUp || !from.IsZero() && from.ChangedUnixMs > 0 {
		behind := int64(0)
		if !caughtUp {
			behind = max(time.Now().UnixMilli()-from.ChangedUnixMs, 0)
		}
		dst = strconv.AppendInt(append(dst, `,"behind_ms":`...), behind, 10)
	}
	return dst
}

// tell writes the state of a stream, with the id with which it continues.
func (a *feedAnswer) tell(out io.Writer, caughtUp bool) error {
	a.buffer = append(append(append(a.buffer, "id: "...), a.q.next()...), "\ndata: {"...)
	a.buffer = append(a.appendState(a.buffer, caughtUp), "}\n\n"...)
	return a.flush(out, 1)
}

// flush writes the buffer if it has at least some length. A stream is sent at once.
func (a *feedAnswer) flush(out io.Writer, least int) error {
	if len(a.buffer) < least {
		return nil
	}
	_, err := out.Write(a.buffer)
	a.buffer = a.buffer[:0]
	if err == nil && a.q.format == feedEvents {
		if err = http.NewResponseController(a.w).Flush(); err != nil {
			err = errors.Join(ErrClientGone, err)
		}
	}
	return err
}

// await waits for the next change. It reports whether the answer ends: when its time is over, or the server stops,
// or the client is gone. A stream has a heartbeat.
func (a *feedAnswer) await(out io.Writer, later <-chan struct{}, end time.Time) (ended bool, err error) {
	_ = http.NewResponseController(a.w).SetWriteDeadline(time.Time{}) // with HTTP/2, it would end an idle answer
	wait, stream := time.Until(end), a.q.format == feedEvents
	if stream {
		wait = heartbeatEvery
	}
	for {
		timer := time.NewTimer(wait)
		select {
		case <-later:
			timer.Stop()
			return false, nil
		case <-a.f.stop:
			timer.Stop()
			return true, nil
		case <-a.r.Context().Done():
			timer.Stop()
			return true, nil
		case now := <-timer.C:
			if !stream {
				return true, nil
			}
			a.buffer = append(append(append(a.buffer, `data: {"kind":"heartbeat","next":"`...), a.q.next()...), '"')
			a.buffer = append(appendInstant(a.buffer, "at", now.UnixMilli()), "}\n\n"...)
			if err := a.flush(out, 1); err != nil {
				return true, err
			}
		}
	}
}

// end writes the end of the answer.
func (a *feedAnswer) end(out io.Writer, caughtUp bool) error {
	switch a.q.format {
	case feedJSON:
		a.buffer = append(a.appendState(append(a.buffer, "\n],"...), caughtUp), "}\n"...)
	case feedLines:
		a.buffer = append(a.appendState(append(a.buffer, '{'), caughtUp), "}\n"...)
	case feedCSV, feedParquet:
		a.w.Header().Set(cursorTrailer, a.q.next())
		a.w.Header().Set(caughtUpTrailer, strconv.FormatBool(caughtUp))
		if err := a.table.close(); err != nil {
			return err
		}
	}
	if caughtUp {
		a.buffer = append(a.buffer, a.q.end...)
	}
	return a.flush(out, 1)
}

// BeginEvents sends the header of a stream of Server-Sent Events.
func BeginEvents(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	if r.ProtoMajor == 1 {
		header.Set("Connection", "close") // with HTTP/2 this would end the other streams
	}
	w.WriteHeader(http.StatusOK)
}
