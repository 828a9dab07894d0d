//go:build !linux

package sim

import (
	"context"
	"net"
)

// newPlainTransport returns the transport for n plain connections.
func newPlainTransport(t *Target, n int) (transport, error) {
	return newNetTransport(n, func(ctx context.Context) (net.Conn, error) { return t.dialContext(ctx, "", "") }), nil
}
