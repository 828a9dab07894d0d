//go:build !linux

package eventloop

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// Server is not supported on this platform.
type Server struct{}

// A Loop is a part of a Server.
type Loop struct{ draining bool }

type session struct{ state *tls.ConnectionState }

// Serve returns ErrUnsupported and leaves origin as it is.
func Serve(net.Listener, Config) (*Server, error) { return nil, ErrUnsupported }

// Accept returns ErrUnsupported.
func (s *Server) Accept() (net.Conn, error) { return nil, ErrUnsupported }

// Addr returns nil.
func (s *Server) Addr() net.Addr { return nil }

// Close does nothing.
func (s *Server) Close() error { return nil }

// Shutdown does nothing.
func (s *Server) Shutdown(context.Context) error { return nil }

// Beat returns true.
func (s *Server) Beat() bool { return true }

// Stats returns zero.
func (s *Server) Stats() Stats { return Stats{} }

// Wake does nothing.
func (l *Loop) Wake() {}

func (l *Loop) ticks(time.Duration) int64 { return 0 }

// Send does nothing.
func (c *Conn) Send([]byte, int) {}

// PeerAddr returns the zero Addr.
func (c *Conn) PeerAddr() netip.Addr { return netip.Addr{} }

// Pause does nothing.
func (c *Conn) Pause(time.Duration) {}

// Expect does nothing.
func (c *Conn) Expect(time.Duration) {}

// Paused returns 0.
func (l *Loop) Paused() int { return 0 }

// Rest does nothing.
func (l *Loop) Rest(time.Duration) {}

// Gather does nothing.
func (l *Loop) Gather(time.Duration) {}
