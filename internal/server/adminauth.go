package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// adminOnly returns h behind a check of who asks, for endpoints of the admin
// listener that change or copy what is stored.
//
// Where there are tokens, the request needs one with the right admin, wherever it
// comes from. Where there are none, it must come from this machine.
//
// A page in a browser on this machine comes from this machine too. So a request
// that a browser says is for another site is refused, and without tokens so is one
// whose Host is a name: of which address a name is, whoever owns it decides, and
// decides anew (DNS rebinding).
func (s *Server) adminOnly(h http.Handler) http.Handler {
	forbidden := func(w http.ResponseWriter, r *http.Request, detail string) {
		s.problems.Forbidden.Write(w, r, detail)
	}
	return fromThisSite(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.access.gate.Tokens == nil {
			if !isLoopbackPeer(r) || !isLoopbackHost(r.Host) {
				forbidden(w, r, "Without tokens this is for requests from this machine to a loopback address.")
				return
			}
			h.ServeHTTP(w, r)
			return
		}
		switch pass, verdict, _ := s.access.gate.Enter(gate.VisitorOf(r), token.Admin, time.Now()); verdict {
		case gate.Passed:
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), adminKey{}, pass.Token())))
		case gate.NoCredentials:
			s.problems.Unauthorized.Write(w, r, "")
		case gate.BadCredentials:
			s.problems.InvalidCredentials.Write(w, r, "")
		default:
			forbidden(w, r, "The right admin is needed.")
		}
	}), s.problems)
}

// adminKey is the key of the token in the context of a request that adminOnly has
// let through.
type adminKey struct{}

// adminActor returns who sent a request that adminOnly has let through, as the audit
// log names him.
func adminActor(ctx context.Context) string {
	if id, ok := ctx.Value(adminKey{}).(token.ID); ok {
		return "token:" + id.String()
	}
	return "this machine"
}

// isLoopbackPeer reports whether a request came from this machine.
func isLoopbackPeer(r *http.Request) bool {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// isLoopbackHost reports whether the value of a Host field is a loopback address,
// or localhost, with or without a port.
func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return IsLoopback(host)
}
