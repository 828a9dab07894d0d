package transfer

import (
	"context"
	"fmt"
	"io"
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
	resp, err := c.Get(ctx, "/v1/devices/"+url.PathEscape(sel.Device)+"/readings?"+query.Encode())
	if err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return "", fmt.Errorf("fetch readings: %w", err)
	}
	return printable(resp.Trailer.Get("Pulsegate-Left-Out")), nil
}
