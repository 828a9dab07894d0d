package live_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// openGate returns a gate with the tokens of a file.
func openGate(t *testing.T, path string) *gate.Gate {
	t.Helper()
	set, err := token.Open(path, token.Options{Every: -1, Hourly: token.Hourly{Reads: 10}})
	try(t, err)
	return &gate.Gate{Tokens: set}
}

// A stream needs the read right, and shows only devices that the token covers.
func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := gatetest.New(t)
		writer := keys.Token(t, "bed-7", "", token.Token{Rights: token.Write})
		all := keys.Token(t, "archive", "", token.Token{Rights: token.Read})
		ward := keys.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
		g := openGate(t, keys.Tokens)
		defer g.Tokens.Close()
		f := start(t, live.Options{Service: query.Service{Gate: g}})
		defer f.stop()
		for _, tt := range []struct {
			auth, target string
			want         int
		}{
			{"Bearer x", "", 401}, {writer, "", 403}, {ward, "?device=other", 403}, {ward, "?device=ppg-1&device=other", 403},
			{ward, "?device=ppg-1", 200},
			{all, "?device=other", 200}, {ward, "?devices=", 400},
		} {
			s := f.open(tt.target, nil, "Authorization", tt.auth)
			s.close()
			if s.resp.StatusCode != tt.want {
				t.Errorf("%s: %s, want %d", tt.target, s.resp.Status, tt.want)
			}
		}
		none := f.open("", nil)
		none.close()
		if none.resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %s", none.resp.Status)
		}
		for _, id := range []string{"", "1"} {
			f.heart("other", time.Now().UnixMilli(), 6000)
			f.heart("ppg-1", time.Now().UnixMilli(), 6000)
			settle() // else the streams may get these readings both from the store and as events
			header := []string{"Authorization", ward, "Last-Event-ID", id}
			streams := []*stream{f.open("", nil, header...), f.open("?prefix=ppg-", nil, header...),
				f.open("?prefix=p", nil, header...)}
			foreign := f.open("?prefix=other", nil, header...)
			settle()
			f.heart("other", time.Now().UnixMilli(), 6000)
			f.heart("ppg-1", time.Now().UnixMilli(), 6000)
			settle()
			for i, s := range streams {
				got := s.readings()
				if len(got) != 1+len(id) || strings.Contains(strings.Join(got, ""), "other") ||
					got[len(got)-1] != f.newest("ppg-1") {
					t.Errorf("Last-Event-ID %q, stream %d: %q", id, i, got)
				}
				s.close()
			}
			if got := foreign.readings(); len(got) != 0 {
				t.Errorf("devices that are not covered: %q", got)
			}
			foreign.close()
		}
	})
}

// A stream ends soon after its token is revoked.
func TestRevoked(t *testing.T) {
	keys := gatetest.New(t)
	auth := keys.Token(t, "ward-7", "", token.Token{Rights: token.Read})
	g := openGate(t, keys.Tokens)
	defer g.Tokens.Close()
	f := start(t, live.Options{Service: query.Service{Gate: g}})
	defer f.stop()
	s := f.open("", nil, "Authorization", auth)
	f.heart("d", 1, 6000)
	polltest.Until(t, "the reading arrives", func() bool { return len(s.readings()) == 1 })
	keys.Revoke(t, "")
	try(t, g.Tokens.Reload())
	f.heart("d", 2, 6000)
	polltest.Until(t, "the stream ends", func() bool {
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
	if n := len(s.readings()); n != 1 || s.err != io.EOF {
		t.Errorf("%d readings, then %v", n, s.err)
	}
}

// A stream ends soon after the CA of the client's certificate is no longer in use.
func TestRemovedCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := gatetest.New(t)
		auth := keys.Token(t, "ward-7", "", token.Token{Rights: token.Read})
		g := openGate(t, keys.Tokens)
		defer g.Tokens.Close()
		var removed atomic.Bool
		g.Certificates, g.Trusted = true, func(*tls.ConnectionState) bool { return !removed.Load() }
		f := start(t, live.Options{Service: query.Service{Gate: g}})
		defer f.stop()
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "ward-7"}, NotAfter: time.Now().Add(time.Hour)}
		f.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf},
				VerifiedChains: [][]*x509.Certificate{{leaf}}}
			f.hub.ServeHTTP(w, r)
		})
		s := f.open("", nil, "Authorization", auth)
		settle()
		removed.Store(true)
		settle()
		select {
		case <-s.ended:
		default:
			t.Error("the stream has not ended")
			s.close()
		}
		if s.resp.StatusCode != http.StatusOK {
			t.Errorf("got %s", s.resp.Status)
		}
	})
}

// A client that has read many readings must be recorded in the audit log to go on.
func TestAudited(t *testing.T) {
	keys := gatetest.New(t)
	auth := keys.Token(t, "ward-7", "", token.Token{Rights: token.Read})
	g := openGate(t, keys.Tokens)
	defer g.Tokens.Close()
	log, err := audit.Open(t.Context(), filepath.Join(t.TempDir(), "audit"), audit.Options{})
	try(t, err)
	g.Audit = log
	var failed atomic.Bool
	f := startReporting(t, live.Options{Service: query.Service{Gate: g, OnError: func(error) { failed.Store(true) }}})
	defer f.stop()
	s := f.open("?device=d", nil, "Authorization", auth)
	for i := range 30 {
		f.heart("d", int64(i), 6000)
		polltest.Until(t, "the reading arrives", func() bool { return len(s.readings()) == i+1 })
	}
	s.close()
	try(t, log.Close())
	if failed.Load() {
		t.Error("an error was reported")
	}
	s = f.open("?device=d", nil, "Authorization", auth)
	f.heart("d", 31, 6000)
	<-s.ended
	if n := len(s.readings()); n != 0 || !failed.Load() {
		t.Errorf("%d readings without a record; reported: %v", n, failed.Load())
	}
}

// One client may have half of the places; another one then has half of the rest.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{Service: query.Service{Holders: new(share.Holders)}, MaxSubscribers: 8})
		defer f.stop()
		f.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = r.Header.Get("X-Peer")
			f.hub.ServeHTTP(w, r)
		})
		count := func(peer string) (n int) {
			for {
				s := f.open("", nil, "X-Peer", net.JoinHostPort(peer, "1"))
				if s.resp.StatusCode != http.StatusOK {
					s.close()
					return n
				}
				t.Cleanup(s.cancel)
				n++
			}
		}
		if first, second := count("192.0.2.1"), count("192.0.2.2"); first != 4 || second != 2 {
			t.Errorf("%d and %d streams, want 4 and 2", first, second)
		}
	})
}
