package transfer

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
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
	resp, end, err := readings(ctx, c, sel)
	if err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	defer resp.Body.Close()
	if err := copyWhole(w, resp.Body, end); err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	return printable(resp.Trailer.Get("Pulsegate-Left-Out")), nil
}

// errCut means that an answer does not end as it should. A proxy may send what it has received as if it were all.
var errCut = errors.New("the answer was cut off before its end")

// copyWhole copies the text before end, which must be the end of in, to w.
func copyWhole(w io.Writer, in io.Reader, end string) error {
	buf, held := make([]byte, 64<<10), 0
	for {
		n, err := in.Read(buf[held:])
		held += n
		if before := held - len(end); before > 0 {
			if _, err := w.Write(buf[:before]); err != nil {
				return err
			}
			held = copy(buf, buf[before:held])
		}
		switch {
		case err == io.EOF && string(buf[:held]) != end:
			return errCut
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// maxReadingBytes bounds a reading in NDJSON.
const maxReadingBytes = 64 << 10

// Readings calls visit with each of the selected readings, a line of NDJSON, which is valid until visit returns. An
// error of visit is [Final].
func (c *Client) Readings(ctx context.Context, sel Selection, visit func(line []byte) error) error {
	sel.Format = "ndjson"
	resp, end, err := readings(ctx, c, sel)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for in := bufio.NewReaderSize(resp.Body, maxReadingBytes); ; {
		line, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && string(line) == end:
			return nil
		case err == io.EOF:
			return errCut
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

// readings requests the selected readings. end is the end of a whole answer.
func readings(ctx context.Context, c *Client, sel Selection) (resp *http.Response, end string, err error) {
	end = rand.Text() // in no cut answer
	query := url.Values{"format": {sel.Format}, "flags": {"false"}, "end": {end}}
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
	resp, err = c.Get(ctx, "/v1/devices/"+url.PathEscape(sel.Device)+"/readings?"+query.Encode())
	return resp, end, err
}
