package fhir

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An export is a job for one request.
type export struct {
	*exporter
	*job
	*exportQuery
	*view
	id    [sha256.Size]byte // of its address
	r     *http.Request
	group vitals.Name      // beginning of the names of its devices
	begun storage.Position // when the file of Observations was begun, if it has only what was changed since

	line []byte
	emit func(line []byte) error // takes a resource, which it must not retain
}

// An exportFile is a file of an export.
type exportFile struct {
	name, typ, section string
	recorded           bool // in the audit log, when it is read
	write              func(*export, context.Context) error
}

// exportFiles returns the files of exports.
func exportFiles() []exportFile {
	return []exportFile{
		{"Patient", "Patient", "output", true, (*export).patients},
		{"Device", "Device", "output", false, (*export).devices},
		{"Observation", "Observation", "output", true, (*export).observations},
		{"deleted", "Bundle", "deleted", false, (*export).deleted},
		{"error", "OperationOutcome", "error", false, (*export).outcomes},
	}
}

// enter authorizes and admits a request for an export that was started, or answers it. If ok is true, the caller must
// call leave at the end of the request.
func (x *exporter) enter(w http.ResponseWriter, r *http.Request) (e *export, leave func(), ok bool) {
	access, verdict := x.opt.May(r, token.ReadSubjects)
	if x.opt.Refuse(w, r, verdict, "A token with the read right is needed.") {
		return nil, nil, false
	}
	if leave, ok = x.opt.Enter(w, r, &access, x.opt.Bound); !ok {
		return nil, nil, false
	}
	e, err := x.open(r, &access)
	if err != nil {
		leave()
		x.refuse(w, r, &access, err)
	}
	return e, leave, err == nil
}

// open returns the export whose address a request has.
func (x *exporter) open(r *http.Request, access *gate.Access) (*export, error) {
	key, bound, err := x.key(r, access)
	if err != nil {
		return nil, err
	}
	now, j, id := time.Now(), &job{}, [sha256.Size]byte{}
	sealed, err := base64.RawURLEncoding.DecodeString(x.opt.Param(r, "job"))
	if err == nil {
		id = sha256.Sum256(sealed)
		sealed, err = key.Open(nil, nil, sealed, bound)
	}
	if err != nil || json.Unmarshal(sealed, j) != nil || !j.valid(now) || x.deleted.has(id) {
		return nil, errNoExport
	}
	e := &export{exporter: x, job: j, view: x.view(access), id: id, r: r}
	if j.Group != "" {
		if e.group, err = vitals.ParseName(j.Group); err != nil {
			return nil, errNoExport
		}
	}
	if e.exportQuery, err = x.parse(r, j); err == nil && !e.Lenient {
		err = x.known(r, e.exportQuery)
	}
	return e, err
}

// remove serves DELETE of an export.
func (x *exporter) remove(w http.ResponseWriter, r *http.Request) {
	e, leave, ok := x.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	x.deleted.add(e.id, e.ExpiresUnix, time.Now())
	text := outcomeOf(information, "The export is not served any more.", "")
	_ = x.accepted.Write(w, r, text) // an error means that the client has disconnected
}

// maxDeleted is the number of deleted exports that are remembered.
const maxDeleted = 4096

// deletedExports are the exports that clients have deleted, until they expire.
type deletedExports struct {
	mu      sync.Mutex
	expires map[[sha256.Size]byte]int64 // in s; guarded by mu
}

func (d *deletedExports) has(id [sha256.Size]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.expires[id]
	return ok
}

// add adds an export. If there are too many, it forgets those that have expired, or else some other one.
func (d *deletedExports) add(id [sha256.Size]byte, expiresUnix int64, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.expires) >= maxDeleted {
		maps.DeleteFunc(d.expires, func(_ [sha256.Size]byte, expires int64) bool { return expires <= now.Unix() })
	}
	for other := range d.expires {
		if len(d.expires) < maxDeleted {
			break
		}
		delete(d.expires, other)
	}
	if d.expires == nil {
		d.expires = map[[sha256.Size]byte]int64{}
	}
	d.expires[id] = expiresUnix
}

// status serves GET of an export: its manifest.
func (x *exporter) status(w http.ResponseWriter, r *http.Request) {
	r = query.WithoutCancel(r)
	e, leave, ok := x.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	base, request := x.base(r), e.Path
	if e.Query != "" {
		request += "?" + e.Query
	}
	manifest := object{
		"transactionTime": string(vitals.AppendTime(nil, e.UnixMs)), "request": base + request,
		"requiresAccessToken": !x.opt.Gate.Open(), "output": []object{}, "error": []object{},
	}
	for _, f := range exportFiles() {
		has, err := e.has(&f)
		if err != nil {
			x.refuse(w, r, e.may, err)
			return
		}
		if has {
			files, _ := manifest[f.section].([]object)
			url := base + "/$export/" + x.opt.Param(r, "job") + "/" + f.name
			manifest[f.section] = append(files, object{"type": f.typ, "url": url})
		}
	}
	text, err := json.Marshal(manifest, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and a bool
	}
	w.Header().Set("Expires", time.Unix(e.ExpiresUnix, 0).UTC().Format(http.TimeFormat))
	_ = x.manifest.Write(w, r, append(text, '\n')) // an error means that the client has disconnected
}

// lookFor is how long a status request looks for a resource of a file. A file without any is then listed.
const lookFor = time.Second

// has reports whether a file has a resource, or may have one: what was removed is looked for when the file is read.
func (e *export) has(f *exportFile) (bool, error) {
	if f.section != "output" && e.incremental() {
		return true, nil
	}
	errFound := errors.New("found")
	e.emit = func([]byte) error { return errFound }
	ctx, cancel := context.WithTimeout(e.r.Context(), lookFor)
	defer cancel()
	err := f.write(e, ctx)
	if err == errFound || err != nil && ctx.Err() != nil {
		return true, nil
	}
	return false, err
}

// file serves GET of a file of an export. It ends when the client closes its sending side: it may look for long before
// it has something to write, which would fail.
func (x *exporter) file(w http.ResponseWriter, r *http.Request) {
	if !r.ProtoAtLeast(1, 1) { // the text does not show its end
		x.reject(w, r, x.opt.Problems.OldHTTP, 0, "")
		return
	}
	e, leave, ok := x.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	files := exportFiles()
	i := slices.IndexFunc(files, func(f exportFile) bool { return f.name == x.opt.Param(r, "file") })
	if i < 0 {
		x.refuse(w, r, e.may, errNoExport)
		return
	}
	f := &files[i]
	begin := func() error {
		if f.recorded && r.Method != http.MethodHead {
			if err := x.opt.Record(r, e.may, gate.Export{}, 0, storage.OpenEnd); err != nil {
				return err
			}
		}
		x.lines.Begin(w)
		return nil
	}
	write := func(out io.Writer) error {
		if r.Method == http.MethodHead {
			return nil
		}
		return e.writeTo(out, f)
	}
	allowed := func() bool {
		_, verdict := x.opt.May(r, token.ReadSubjects)
		return verdict == gate.Allowed
	}
	x.opt.Stream(w, allowed, begin, write, func(err error) { x.refuse(w, r, e.may, err) })
}

// writeTo writes a file.
func (e *export) writeTo(out io.Writer, f *exportFile) error {
	var text []byte
	e.emit = func(line []byte) error {
		if text = append(append(text, line...), '\n'); len(text) < flushBytes {
			return nil
		}
		_, err := out.Write(text)
		text = text[:0]
		return err
	}
	err := f.write(e, e.r.Context())
	if err == nil && len(text) > 0 {
		_, err = out.Write(text)
	}
	return err
}

// renew looks again at what the client may see.
func (e *export) renew(ctx context.Context) error {
	access, verdict := e.opt.May(e.r, token.ReadSubjects)
	if verdict != gate.Allowed {
		return query.ErrRevoked
	}
	e.may = &access
	return ctx.Err()
}
