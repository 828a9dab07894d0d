package transfer

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Bounds used by the tests.
const (
	MaxWait        = maxWait
	MaxAnswerBytes = maxAnswerBytes
	IdleTimeout    = idleTimeout
)

// SetWait makes c call wait between two tries.
func (c *Client) SetWait(wait func(ctx context.Context, d time.Duration) error) { c.wait = wait }

// SetDial makes c open its connections with dial.
func (c *Client) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = dial
}
