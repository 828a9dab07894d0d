package forward

import (
	"context"
	"net"
	"time"
)

// SetDial makes w open its connections with dial.
func (w *Webhook) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.transport.DialContext = dial
}

// SetWait makes w call wait between two attempts.
func (w *Webhook) SetWait(wait func(ctx context.Context, d time.Duration) error) { w.wait = wait }
