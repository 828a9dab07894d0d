package transfer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// A Selection selects readings to download.
type Selection struct {
	Device string
	From   string // inclusive, in the server's format; "" is open
	To     string // exclusive; "" is open
	Format string // "ndjson", "csv", "parquet" or "omh"
	Newest bool   // only the newest reading
}

// Download writes the selected readings to w as the server sends them. After an error,
// w may have received part of them. leftOut names the signs that the format lacks, with commas between them.
func (c *Client) Download(ctx context.Context, w io.Writer, sel Selection) (leftOut string, err error) {
	resp, err := readings(ctx, c, sel)
	if err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	return printable(resp.Trailer.Get("Pulsegate-Left-Out")), nil
}

// maxReadingBytes bounds a reading in NDJSON.
const maxReadingBytes = 64 << 10

// Readings calls visit with each of the selected readings, a line of NDJSON, which is valid until visit returns. An error of
// visit is [Final].
func (c *Client) Readings(ctx context.Context, sel Selection, visit func(line []byte) error) error {
	sel.Format = "ndjson"
	resp, err := readings(ctx, c, sel)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for in := bufio.NewReaderSize(resp.Body, maxReadingBytes); ; {
		line, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err == bufio.ErrBufferFull:
			return Final(fmt.Errorf("%w: a line of readings is too long", ErrNotPulsegate))
		case err != nil:
			return err
		}
		if err := visit(line); err != nil {
			return Final(err)
		}
	}
}

// readings requests the selected readings.
func readings(ctx context.Context, c *Client, sel Selection) (*http.Response, error) {
	query := url.Values{"format": {sel.Format}, "flags": {"false"}}
	if sel.From != "" {
		query.Set("from", sel.From)
	}
	if sel.To != "" {
		query.Set("to", sel.To)
	}
	if sel.Newest {
		query.Set("order", "desc")
		query.Set("limit", "1")
	}
	return c.Get(ctx, "/v1/devices/"+url.PathEscape(sel.Device)+"/readings?"+query.Encode())
}
