package answers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Names of the forms.
const (
	Before    = "before"
	After     = "after"
	Pulsegate = "pulsegate"
)

// A Form is a way to answer requests.
type Form struct {
	Impl    string // Before, After or Pulsegate
	Handler http.Handler
}

// A Discard is a ResponseWriter that does not allocate and keeps only counts. Use
// [NewDiscard] to create one.
type Discard struct {
	Fields http.Header
	Status int // of the last WriteHeader; 0 means none
	Bytes  int // total bytes of bodies
}

// NewDiscard returns a Discard.
func NewDiscard() *Discard { return &Discard{Fields: make(http.Header)} }

// Header returns the fields. They persist across responses, like the buckets of a map
// that a server reuses.
func (d *Discard) Header() http.Header { return d.Fields }

// WriteHeader records the status.
func (d *Discard) WriteHeader(status int) { d.Status = status }

// Write counts the bytes.
func (d *Discard) Write(p []byte) (int, error) {
	d.Bytes += len(p)
	return len(p), nil
}

// A body is a request body that can be reread without an allocation.
type body struct{ strings.Reader }

func (*body) Close() error { return nil }

// Check serves one request with h. It returns an error unless the response is 200 with
// the given content type and JSON equal to want, ignoring white space.
func Check(h http.Handler, r *http.Request, contentType, want string) error {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	resp := rec.Result()
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, got); err != nil {
		return fmt.Errorf("read answer %q: %w", got, err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != contentType || compact.String() != want {
		return fmt.Errorf("got %d %s %q, want 200 %s %q", resp.StatusCode, resp.Header.Get("Content-Type"), got,
			contentType, want)
	}
	return nil
}
