package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// changesWait is how long a request waits for a change. It is shorter than answerTimeout.
const changesWait = 45 * time.Second

// emptyWait is the pause after an answer without changes that is not the end.
const emptyWait = 200 * time.Millisecond

// MaxCursorBytes bounds a cursor of changes.
const MaxCursorBytes = 2048

// ErrCursorUnknown means that the server does not know what follows a cursor of changes: begin again without one.
var ErrCursorUnknown = errors.New("the server does not know what follows the cursor")

// A ChangeSelection selects changes. Its zero value selects all that the token covers.
type ChangeSelection struct {
	Device  string // only this one; not with Prefix
	Prefix  string // of the names of devices
	Signs   string // fields with commas between them
	Subject string
	Cursor  string // "" begins with a copy of the store
	Follow  bool   // wait for changes
	Limit   int    // of changes at a time; 0 leaves it to the server
}

// A ChangesPage has some changes.
type ChangesPage struct {
	After    string           `json:"-"` // the cursor that they follow
	Changes  []jsontext.Value `json:"changes"`
	Next     string           `json:"next"` // the cursor of what follows them
	CaughtUp bool             `json:"caught_up"`
	BehindMs int64            `json:"behind_ms"` // how long ago the next ones were made, if the server says so
}

// Changes fetches the changes after the selection's cursor, and calls use with some at a time, until there are no
// more, or use returns an error. If it follows, it returns only with an error. use is called at least once for each
// change; a page without changes has a later cursor.
func Changes(ctx context.Context, c *Client, sel ChangeSelection, use func(page *ChangesPage) error) error {
	for {
		page := ChangesPage{After: sel.Cursor}
		if err := c.Retry(ctx, func() error { return changesOnce(ctx, c, &sel, &page) }); err != nil {
			if p, ok := errors.AsType[*Problem](err); ok && strings.HasSuffix(p.Type, "#cursor-unknown") {
				return ErrCursorUnknown
			}
			return fmt.Errorf("read changes: %w", err)
		}
		if _, err := base64.RawURLEncoding.DecodeString(page.Next); err != nil || page.Next == "" ||
			len(page.Next) > MaxCursorBytes {
			return fmt.Errorf("read changes: %w", ErrNotPulsegate)
		}
		if err := use(&page); err != nil {
			return err
		}
		sel.Cursor = page.Next
		switch {
		case page.CaughtUp && !sel.Follow:
			return nil
		case !page.CaughtUp && len(page.Changes) == 0: // the server stops, or has found nothing for long
			if err := c.wait(ctx, emptyWait); err != nil {
				return err
			}
		}
	}
}

// DownloadChanges writes what the selection has now to w as CSV or Parquet, as the server sends it. After an error, w
// may have received part of it.
func DownloadChanges(ctx context.Context, c *Client, w io.Writer, sel ChangeSelection, format string) error {
	end := rand.Text() // in no cut answer, and in none that has not caught up
	method, path, body, err := sel.request(url.Values{"format": {format}, "end": {end}})
	var resp *http.Response
	if err == nil {
		resp, err = c.stream(ctx, method, path, body)
	}
	if err != nil {
		return fmt.Errorf("fetch changes: %w", err)
	}
	defer resp.Body.Close()
	if err := copyWhole(w, resp.Body, end); err != nil {
		return fmt.Errorf("fetch changes: %w", err)
	}
	return nil
}

// changesOnce sends a request for changes once.
func changesOnce(ctx context.Context, c *Client, sel *ChangeSelection, page any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	method, path, body, err := sel.request(url.Values{"format": {"json"}})
	if err != nil {
		return Final(err)
	}
	resp, err := c.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	return readAnswer(resp, page)
}

// request returns a request for the changes that sel selects, which has the parameters in query, too.
func (sel *ChangeSelection) request(query url.Values) (method, path string, body io.Reader, err error) {
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("after", sel.Cursor)
	set("device", sel.Device)
	set("prefix", sel.Prefix)
	set("signs", strings.ReplaceAll(sel.Signs, " ", ""))
	if sel.Limit > 0 {
		query.Set("limit", strconv.Itoa(sel.Limit))
	}
	if sel.Follow {
		query.Set("wait", changesWait.String())
	}
	method = http.MethodGet
	if sel.Subject != "" {
		text, err := json.Marshal(map[string]string{"subject": sel.Subject})
		if err != nil {
			return "", "", nil, err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}
	return method, "/v1/changes?" + query.Encode(), body, nil
}
