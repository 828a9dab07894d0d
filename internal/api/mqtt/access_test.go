package mqtt_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// The password is a token, and the user name, if there is one, its gateway. Rejections have the gateway of the
// token.
func TestTokens(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		clock := newClock()
		f := gatetest.New(t)
		bed := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})[7:]
		ppg := f.Token(t, "bed-8", "ppg-", token.Token{Rights: token.Write})[7:]
		read := f.Token(t, "bed-7", "", token.Token{Rights: token.Read})[7:]
		expired := f.Token(t, "bed-7", "", token.Token{Rights: token.Write, Expires: clock.now()})[7:]
		g := f.Open(t)
		refused := func() uint64 { return g.Refused(audit.OtherGateway) }
		s := start(t, l, config{clock: clock, gate: g, topic: "wards/{gateway}/{device}"})
		for _, tt := range []struct{ name, user, password, v3, v5 string }{
			{"a token", "bed-7", bed, "0", "0"},
			{"of another gateway", "bed-8", bed, "5", "0x87"},
			{"of no gateway that is a name", "bed 7", bed, "4", "0x86"},
			{"a wrong token", "bed-7", strings.Repeat("x", len(bed)), "4", "0x86"},
			{"no token at all", "bed-7", "", "5", "0x87"},
			{"nothing", "", "", "5", "0x87"},
			{"binary", "bed-7", "\x00\xff", "4", "0x86"},
			{"to read", "bed-7", read, "5", "0x87"},
			{"expired", "bed-7", expired, "4", "0x86"},
		} {
			for version, code := range map[byte]string{4: tt.v3, 5: tt.v5} {
				c := s.dial(t)
				c.send(signIn(version, tt.user, tt.password))
				if c.want("CONNACK " + code); code != "0" {
					c.want("closed")
				}
			}
		}
		// Two names of two versions: refusals of identity are the gate's, which counts and records them.
		if n := refused(); n != 4 {
			t.Errorf("%d clients named another gateway than their token, want 4", n)
		}
		c := s.dial(t)
		c.send(signIn(5, "", ppg))
		c.want("CONNACK 0")
		for i, tt := range []struct{ name, topic, payload, want, listed string }{
			{"stored", "wards/bed-8/ppg-1", reading(1), "", ""},
			{"of another gateway", "wards/bed-7/ppg-1", reading(2), "0x90 topic: not the configured topic",
				"mqtt|bed-8|ppg-1|topic|not the configured topic"},
			{"of another gateway in the payload", "wards/bed-8/ppg-1", `{"gateway":"bed-7","time":1,"spo2_pct":97}`,
				"0x99 gateway: not the one of the topic or of the credentials",
				"mqtt|bed-8|ppg-1|gateway|not the one of the topic or of the credentials"},
			{"of a device that is not covered", "wards/bed-8/x", reading(2), "0x87 device: the token is not for this device",
				"mqtt|bed-8|x|device|the token is not for this device"},
		} {
			c.send(publish(5, 1, i+1, tt.topic, tt.payload))
			got := c.next()
			if _, got, _ = strings.Cut(strings.TrimPrefix(got, "PUBACK "), " "); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			if got := strings.Join(s.rejected(), " "); got != tt.listed {
				t.Errorf("%s: listed %q, want %q", tt.name, got, tt.listed)
			}
		}
		if n := refused(); n != 6 {
			t.Errorf("%d refusals for another gateway after two publications, want 6", n)
		}
		try(t, g.Audit.Close())
		var of []string // the tokens that the clients presented
		for _, line := range f.Records(t, "auth.refused") {
			_, token, _ := strings.Cut(line, `"event":"auth.refused",`)
			if token, found := strings.CutSuffix(token[:strings.Index(token, `"chain"`)],
				`,"reason":"other-gateway","peer":"127.0.0.1",`); found {
				of = append(of, token)
			}
		}
		if tokens := slices.Compact(slices.Clone(of)); len(of) != 6 || len(tokens) != 2 || of[3] != tokens[0] ||
			!strings.HasPrefix(of[0], `"token":"`) {
			t.Errorf("the audit log has other gateways of %q, want four of a token and two of another", of)
		}
	})
}

// A client whose token is revoked, or whose certificate expires, ends at its next packet.
func TestRevoked(t *testing.T) {
	ca := certtest.New("ca")
	pair := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ca.Client("bed-7").TLS()}}
	eachLane(t, func(t *testing.T, l lane) {
		f := gatetest.New(t)
		bed := f.Token(t, "bed-7", "", token.Token{Rights: token.Write})[7:]
		cfg := config{gate: f.Open(t)}
		if l.secure {
			cfg.clock = newClock()
			cfg.clock.advance(time.Since(cfg.clock.now()))
			cfg.gate = &gate.Gate{Certificates: true}
			cfg.tls = &tls.Config{Certificates: []tls.Certificate{ca.Server(1).TLS()}, ClientCAs: ca.Pool(),
				ClientAuth: tls.VerifyClientCertIfGiven}
		}
		s := start(t, l, cfg)
		if l.secure {
			stranger := s.dial(t)
			stranger.send(hello(5))
			stranger.want("CONNACK 0x87", "closed")
			other := s.dialAs(t, pair)
			other.send(signIn(5, "bed-8", ""))
			other.want("CONNACK 0x87", "closed")
			if n := cfg.gate.Refused(audit.OtherGateway); n != 1 {
				t.Errorf("%d clients named another gateway than their certificate, want 1", n)
			}
		}
		var all []*client
		for i := range 12 {
			c := s.dialAs(t, pair)
			if version := byte(4 + i%2); l.secure {
				c.send(hello(version))
			} else {
				c.send(signIn(version, "bed-7", bed))
			}
			c.want("CONNACK 0")
			c.send(publish(byte(4+i%2), 1, 1, "pulsegate/d", reading(i)))
			c.want("PUBACK 1")
			all = append(all, c)
		}
		if got := s.store.take(); len(got) != 12 || !strings.Contains(got[0], `by "bed-7"`) {
			t.Errorf("stored %q, want 12 by bed-7", got)
		}
		if l.secure {
			s.clock.advance(24 * time.Hour)
		} else {
			f.Revoke(t, "bed-7")
			try(t, cfg.gate.Tokens.Reload())
		}
		for i, c := range all {
			version := byte(4 + i%2)
			noProps := map[byte]string{5: "\x00"}[version]
			c.send([]string{publish(version, 1, 2, "pulsegate/e", reading(i)), pingreq,
				publish(version, 0, 0, "pulsegate/e", reading(i)),
				packet(0x62, u16(7)), packet(0x82, u16(7)+noProps+text("a")+"\x01"), packet(0xa2, u16(7)+noProps+text("a"))}[i/2])
			c.want(strings.Split(ended(version, "0x87"), ", ")...)
		}
		if got := s.store.take(); len(got) != 0 {
			t.Errorf("stored %q without access", got)
		}
	})
}

// A connection beyond the bound is refused in CONNACK, and the others are unharmed.
func TestGuests(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{opt: mqtt.Options{Options: front.Options{Conns: &share.Conns{Max: 2, MaxGuests: 4}}}})
		first, second := s.connect(t, 4), s.connect(t, 5)
		for version, code := range map[byte]string{4: "3", 5: "0x89"} {
			c := s.dial(t)
			c.send(hello(version))
			c.want("CONNACK "+code, "closed")
			_ = c.Close()
		}
		first.send(publish(4, 1, 1, "pulsegate/d", reading(1)))
		second.send(publish(5, 1, 1, "pulsegate/d", reading(2)))
		first.want("PUBACK 1")
		second.want("PUBACK 1")
		_ = first.Close()
		polltest.Until(t, "one has left", func() bool { return s.conns.Open() == 1 })
		s.connect(t, 4)
	})
}

// A client that floods the server with packets that need no commit is not read for a while, again and again, so that
// it does not keep the server from others. Each packet is answered.
func TestFlood(t *testing.T) {
	const rounds = 3
	for _, tt := range []struct {
		name, packets, answer string
		answers               int // a round
	}{
		{"pings", strings.Repeat(pingreq, 1000), "PINGRESP", 1000},
		{"rejected readings", strings.Repeat(publish(4, 0, 0, "pulsegate/d", "{}"), 1000) + pingreq, "PINGRESP", 1},
		{"wrong topics", strings.Repeat(publish(4, 1, 7, "x/d", reading(1)), 1000), "PUBACK 7", 1000},
		{"many filters", packet(0x82, u16(1)+strings.Repeat(text("x")+"\x00", 15_000)) + pingreq, "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachLane(t, func(t *testing.T, l lane) {
				s := start(t, l, config{})
				flood, other := s.connect(t, 4), s.connect(t, 5)
				go func() {
					for range rounds {
						if _, err := flood.Write([]byte(tt.packets)); err != nil {
							t.Error(err)
						}
					}
				}()
				for i := range 5 {
					other.send(publish(5, 1, i+1, "pulsegate/d", reading(i)))
					other.want(fmt.Sprint("PUBACK ", i+1))
				}
				for range rounds * tt.answers {
					if got := flood.next(); tt.answer != "" && got != tt.answer {
						t.Fatalf("%.100s, want an answer to each", got)
					}
				}
				if s.Slowed() == 0 {
					t.Error("the client was not slowed down")
				}
			})
		})
	}
}

// The list of rejections is no channel between tenants: a client cannot add to what readers of a device see that its
// token does not cover.
func TestForeignRejections(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		f := gatetest.New(t)
		ppg := f.Token(t, "bed-8", "ppg-", token.Token{Rights: token.Write})[7:]
		s := start(t, l, config{gate: f.Open(t)})
		c := s.dial(t)
		c.send(signIn(4, "bed-8", ppg))
		c.want("CONNACK 0")
		c.send(publish(4, 1, 1, "pulsegate/x", reading(1)), publish(4, 1, 2, "pulsegate/x", "{}"),
			publish(4, 1, 3, "pulsegate/ppg-1", "{}"), publish(4, 1, 4, "pulsegate/x", "["+reading(1)+"]"))
		c.want("PUBACK 1", "PUBACK 2", "PUBACK 3", "PUBACK 4")
		newest, _ := s.list.Newest(10, func(*rejections.Rejection) bool { return true })
		if len(newest) != 4 {
			t.Fatalf("%d rejections are listed, want 4", len(newest))
		}
		for _, r := range newest {
			if own := r.Device.String() == "ppg-1"; r.Foreign == own {
				t.Errorf("a rejection of %s: foreign %t", r.Device, r.Foreign)
			}
		}
	})
}
