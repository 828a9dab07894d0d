package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A Selection names the readings to fetch, and who follows how they come.
type Selection struct {
	Device string
	From   string // as the server takes it; "" is open
	To     string // exclusive; "" is open
	Format string // "ndjson" or "csv"

	Progress func(bytes int64) // called with all bytes written so far after each write, may be nil
}

// idleTimeout is how long the server may send nothing during an export.
const idleTimeout = 60 * time.Second

// Download writes the selected readings to w as the server sends them. After an
// error, w may hold part of them.
func (c *Client) Download(ctx context.Context, w io.Writer, sel Selection) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The whole takes as long as it takes, each step of it does not.
	idle := time.AfterFunc(idleTimeout, func() {
		cancel(fmt.Errorf("the server sent nothing for %v", idleTimeout))
	})
	defer idle.Stop()

	query := url.Values{"format": {sel.Format}, "flags": {"false"}}
	if sel.From != "" {
		query.Set("from", sel.From)
	}
	if sel.To != "" {
		query.Set("to", sel.To)
	}
	target := c.target + "/v1/devices/" + url.PathEscape(sel.Device) + "/readings?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := c.do(req)
	if err != nil {
		return fmt.Errorf("fetch readings: %w", cause(ctx, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		return readProblem(resp, text)
	}
	if !framed(resp) {
		return errors.New("fetch readings: the answer does not tell where it ends")
	}
	var written int64
	buf := make([]byte, 64<<10)
	for {
		idle.Reset(idleTimeout)
		n, err := resp.Body.Read(buf)
		idle.Stop() // a slow w is not the server's silence
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("write readings: %w", err)
			}
			written += int64(n)
			if sel.Progress != nil {
				sel.Progress(written)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch readings: broken off: %w", cause(ctx, err))
		}
	}
}

// framed reports whether the end of resp's body can be told from a connection
// that broke off. In HTTP/1, a body with neither a length nor chunks ends with the
// connection (RFC 9112, section 6.3).
func framed(resp *http.Response) bool {
	return resp.ProtoMajor > 1 || resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
}

// cause returns why ctx was cancelled, or err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}
