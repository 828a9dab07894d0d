package transfer

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
)

// MaxUnanswered is the number of rejections that a server lists.
const MaxUnanswered = 1000

// An Unanswered is a rejection of which the server could not tell the client.
type Unanswered struct {
	Time    Time   `json:"time"`
	Input   string `json:"input"`             // the protocol
	Gateway string `json:"gateway,omitempty"` // "" if not known
	Device  string `json:"device,omitempty"`  // "" if not known
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	LeftOut uint64 `json:"left_out,omitzero"` // number of values; 0 means that it is a rejection
}

// Rejections returns the newest rejections that the server lists, at most limit, and the number of all
// since its start, or 0 if the client may not know that. If device is "", they are of all devices.
func (c *Client) Rejections(ctx context.Context, device string, limit int) (newest []Unanswered,
	total uint64, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if device != "" {
		query.Set("device", device)
	}
	var body struct {
		Rejections []Unanswered `json:"rejections"`
		Total      uint64       `json:"total"`
	}
	if err := fetch(ctx, c, "/v1/rejections?"+query.Encode(), &body); err != nil {
		return nil, 0, fmt.Errorf("list rejections: %w", err)
	}
	if body.Rejections == nil {
		return nil, 0, fmt.Errorf("list rejections: %w", ErrNotPulsegate)
	}
	for i := range body.Rejections {
		r := &body.Rejections[i]
		for _, text := range []*string{&r.Input, &r.Gateway, &r.Device, &r.Field, &r.Reason} {
			*text = printable(*text)
		}
	}
	return body.Rejections, body.Total, nil
}
