package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// A reply is what a listener does about a PUBLISH.
type reply struct {
	after  time.Duration // before sending
	send   []packets.Packet
	hangUp bool
}

// ack returns an acknowledgement.
func ack(p *packets.Packet, code byte) reply {
	kind := packets.Puback
	if p.FixedHeader.Qos == 2 {
		kind = packets.Pubrec
	}
	return reply{send: []packets.Packet{{FixedHeader: header(kind), PacketID: p.PacketID, ReasonCode: code}}}
}

// A listener is an MQTT server, over pipes in a synctest bubble or over the network.
type listener struct {
	version  byte
	publish  func(n int, p *packets.Packet) reply // for publication n, from 0; nil accepts
	connack  func(n int) *packets.Packet          // for connection n, from 0; nil accepts
	released func(n int) bool                     // whether to answer PUBREL n; nil: yes
	silent   bool                                 // no answer to a PINGREQ

	mu       sync.Mutex // guards the following fields
	conns    int
	connects []packets.ConnectParams
	got      []packets.Packet
	at       []time.Time
	releases int
	pings    []time.Time
	goodbyes int
	flying   int
	most     int // most publications in flight
	tasks    sync.WaitGroup
}

func (l *listener) dial(context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	l.tasks.Go(func() { l.serve(server) })
	return client, nil
}

// run runs opt against l with the bubble's fake clock.
func (l *listener) run(t *testing.T, opt sim.Options) (*sim.Report, error) {
	t.Helper()
	opt.Run, opt.Seed = "p", 1
	if opt.MQTTVersion = "3.1.1"; l.version == 5 {
		opt.MQTTVersion = "5"
	}
	report, err := sim.Run(t.Context(), opt.OverMQTT(l.dial, ""))
	l.tasks.Wait()
	wantSum(t, report)
	return report, err
}

// readPacket reads a packet of a client.
func readPacket(in io.Reader, version byte) (packets.Packet, error) {
	text := make([]byte, 1)
	if _, err := io.ReadFull(in, text); err != nil {
		return packets.Packet{}, err
	}
	length := 0
	for shift, more := 0, true; more; shift += 7 {
		var b [1]byte
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return packets.Packet{}, err
		}
		text = append(text, b[0])
		length |= int(b[0]&0x7f) << shift
		more = b[0] >= 0x80
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(in, body); err != nil {
		return packets.Packet{}, err
	}
	return decode(version, append(text, body...))
}

func (l *listener) serve(conn net.Conn) {
	var writes sync.Mutex
	defer conn.Close()
	send := func(all ...packets.Packet) {
		var text []byte
		for _, p := range all {
			p.ProtocolVersion = l.version
			text = append(text, encode(p)...)
		}
		writes.Lock()
		defer writes.Unlock()
		_, _ = conn.Write(text) // the client may have gone
	}
	for first := true; ; first = false {
		p, err := readPacket(conn, l.version)
		if err != nil || first != (p.FixedHeader.Type == packets.Connect) {
			return
		}
		l.mu.Lock()
		hangUp := false
		switch p.FixedHeader.Type {
		case packets.Connect:
			answer := &packets.Packet{FixedHeader: header(packets.Connack)}
			if l.connack != nil {
				answer = l.connack(l.conns)
			}
			l.conns++
			l.connects = append(l.connects, p.Connect)
			l.flying = 0
			send(*answer)
			hangUp = answer.ReasonCode != 0
		case packets.Publish:
			p.Payload = bytes.Clone(p.Payload)
			n := len(l.got)
			l.got, l.at = append(l.got, p), append(l.at, time.Now())
			l.flying++
			l.most = max(l.most, l.flying)
			do := ack(&p, 0)
			if p.FixedHeader.Qos == 0 {
				do = reply{}
			}
			if l.publish != nil {
				do = l.publish(n, &p)
			}
			if do.after > 0 {
				l.tasks.Go(func() {
					time.Sleep(do.after)
					l.mu.Lock()
					defer l.mu.Unlock()
					l.flying--
					send(do.send...)
				})
			} else if len(do.send) > 0 {
				l.flying--
				send(do.send...)
			}
			hangUp = do.hangUp
		case packets.Pubrel:
			l.releases++
			if l.released == nil || l.released(l.releases-1) {
				send(packets.Packet{FixedHeader: header(packets.Pubcomp), PacketID: p.PacketID})
			} else {
				hangUp = true
			}
		case packets.Pingreq:
			l.pings = append(l.pings, time.Now())
			if !l.silent {
				send(packets.Packet{FixedHeader: header(packets.Pingresp)})
			}
		case packets.Disconnect:
			l.goodbyes++
			hangUp = true
		}
		l.mu.Unlock()
		if hangUp {
			return
		}
	}
}

// All publications are acknowledged, with each version and quality of service.
func TestMQTT(t *testing.T) {
	for _, version := range mqttVersions {
		for qos := range 3 {
			synctest.Test(t, func(t *testing.T) {
				l := &listener{version: version}
				token := []string{"", "pgt_secret", ""}[qos]
				r, err := l.run(t, sim.Options{Users: 3, Devices: 5, Posts: 100, QoS: qos, Token: token})
				if err != nil || r.Fault() != nil || len(r.Errors) != 0 {
					t.Fatal(err, r.Fault(), r.Errors)
				}
				safe, unconfirmed := uint64(300), uint64(0)
				if qos == 0 {
					safe, unconfirmed = 0, 300
				}
				if r.Stored != safe || r.Failed != unconfirmed || r.Requests != 300 || r.Tries != 300 || r.GivenUp != 0 ||
					len(l.got) != 300 || l.goodbyes != 3 {
					t.Errorf("version %d, QoS %d: got %+v, %d publications, %d goodbyes", version, qos, r, len(l.got), l.goodbyes)
				}
				if qos == 2 && l.releases != 300 {
					t.Errorf("%d PUBREL, want 300", l.releases)
				}
				ids, names := map[string]bool{}, map[string]bool{}
				for _, c := range l.connects {
					ids[c.ClientIdentifier], names[string(c.Username)] = true, true
					if string(c.Password) != token {
						t.Errorf("password %q", c.Password)
					}
				}
				want := map[string]bool{"gw-000000": true, "gw-000001": true, "gw-000002": true}
				if token != "" { // which has the gateway's name
					want = map[string]bool{"": true}
				}
				if len(ids) != 3 || !reflect.DeepEqual(names, want) {
					t.Errorf("clients %v, user names %v", ids, names)
				}
				named := 0
				for _, p := range l.got {
					if h := p.FixedHeader; h.Dup || int(h.Qos) != qos {
						t.Errorf("got %+v", h)
					}
					if bytes.Contains(p.Payload, []byte(`"device":"`+strings.TrimPrefix(p.TopicName, "pulsegate/")+`"`)) {
						named++
					} else if bytes.Contains(p.Payload, []byte("device")) {
						t.Errorf("topic %s with %s", p.TopicName, p.Payload)
					}
				}
				if named < 100 || named > 200 {
					t.Errorf("%d of 300 payloads name the device, want about half", named)
				}
			})
		}
	}
}

// A publication that is not acknowledged when the connection ends is sent again, with DUP,
// and with the same packet identifier and payload.
func TestMQTTResends(t *testing.T) {
	for name, tt := range map[string]struct {
		qos  int
		last func(p *packets.Packet) reply
		want string
	}{
		"connection lost":               {1, func(*packets.Packet) reply { return reply{hangUp: true} }, "connection lost"},
		"connection lost before PUBREC": {2, func(*packets.Packet) reply { return reply{hangUp: true} }, "connection lost"},
		"no answer":                     {1, func(*packets.Packet) reply { return reply{} }, "timed out"},
		"DISCONNECT": {1, func(*packets.Packet) reply {
			return reply{send: []packets.Packet{{FixedHeader: header(packets.Disconnect), ReasonCode: 0x89}}}
		}, "DISCONNECT 0x89"},
		"unspecified error": {1, func(p *packets.Packet) reply { return ack(p, 0x80) }, "outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &listener{version: 5, publish: func(n int, p *packets.Packet) reply {
					if n == 2 {
						return tt.last(p)
					}
					return ack(p, 0)
				}}
				r, err := l.run(t, sim.Options{Users: 1, Posts: 5, QoS: tt.qos, InFlight: 1, Timeout: 2 * time.Second})
				try(t, err, r.Fault())
				if r.Stored != 5 || r.Tries != 6 || !reflect.DeepEqual(r.Errors, map[string]uint64{tt.want: 1}) {
					t.Errorf("got %+v", r)
				}
				a, b := l.got[2], l.got[3]
				if a.FixedHeader.Dup || !b.FixedHeader.Dup || a.PacketID != b.PacketID || !bytes.Equal(a.Payload, b.Payload) ||
					a.TopicName != b.TopicName {
					t.Errorf("got %+v, then %+v", a, b)
				}
				for i, p := range l.got {
					if p.FixedHeader.Dup && i != 3 {
						t.Errorf("publication %d has DUP", i)
					}
				}
			})
		})
	}
}

// The server's Receive Maximum bounds what is in flight. The wait for it is not the simulator's.
func TestReceiveMaximum(t *testing.T) {
	for _, qos := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := &listener{
				version: 5,
				connack: func(int) *packets.Packet {
					return &packets.Packet{FixedHeader: header(packets.Connack), Properties: packets.Properties{ReceiveMaximum: 3}}
				},
				publish: func(n int, p *packets.Packet) reply {
					do := ack(p, 0)
					do.after = 100 * time.Millisecond
					return do
				},
			}
			r, err := l.run(t, sim.Options{Users: 1, Rate: 100, For: time.Second, QoS: qos})
			try(t, err, r.Fault())
			if r.Stored != 100 || l.most != 3 || r.Latency.MaxUs < 2_000_000 || r.Lateness.MaxUs > 20_000 {
				t.Errorf("QoS %d: %d in flight, %+v", qos, l.most, r)
			}
		})
	}
}

// A server that is over its quota gets the publication again as a new one.
func TestMQTTQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{version: 5, publish: func(n int, p *packets.Packet) reply {
			if n < 3 {
				return ack(p, 0x97)
			}
			return ack(p, 0)
		}}
		r, err := l.run(t, sim.Options{Users: 1, Posts: 2, QoS: 1, InFlight: 1})
		try(t, err, r.Fault())
		if r.Stored != 2 || r.Refused429 != 3 || len(r.Errors)+len(r.RetryAfter) != 0 || r.Problems["reason 0x97"] != 3 {
			t.Errorf("got %+v", r)
		}
		for i, p := range l.got {
			if p.FixedHeader.Dup {
				t.Errorf("publication %d has DUP", i)
			}
		}
		if wait := l.at[3].Sub(l.at[0]); wait < 350*time.Millisecond {
			t.Errorf("sent 3 times again within %v", wait)
		}
	})
}

func TestConnackRefuses(t *testing.T) {
	refuse := func(code byte, from, to int) func(int) *packets.Packet {
		return func(n int) *packets.Packet {
			p := &packets.Packet{FixedHeader: header(packets.Connack)}
			if n >= from && n < to {
				p.ReasonCode = code
			}
			return p
		}
	}
	lose := func(n int, p *packets.Packet) reply {
		if n == 1 {
			return reply{hangUp: true}
		}
		return ack(p, 0)
	}
	for name, tt := range map[string]struct {
		version byte
		connack func(int) *packets.Packet
		want    string // "" means that the run succeeds
	}{
		"always, 3.1.1":           {4, refuse(5, 0, 100), "the target refuses connections: CONNACK 0x05 1"},
		"always, 5":               {5, refuse(0x87, 0, 100), "the target refuses connections: CONNACK 0x87 1"},
		"the password, later":     {4, refuse(4, 1, 100), "the server rejects the credentials: CONNACK 0x04"},
		"the token, later":        {5, refuse(0x86, 1, 100), "the server rejects the credentials: CONNACK 0x86"},
		"while it is busy":        {5, refuse(0x89, 1, 4), ""},
		"while it is unavailable": {4, refuse(3, 1, 4), ""},
		"a quality of service of 1": {5, func(int) *packets.Packet {
			return &packets.Packet{FixedHeader: header(packets.Connack), Properties: packets.Properties{MaximumQosFlag: true}}
		}, "not connected"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &listener{version: tt.version, connack: tt.connack, publish: lose}
				r, err := l.run(t, sim.Options{Users: 1, Posts: 3, QoS: 1, InFlight: 1, Token: "pgt_secret"})
				if tt.want == "" && (err != nil || r.Fault() != nil || r.Stored != 3) {
					t.Errorf("got %v, %v, %+v", err, r.Fault(), r)
				}
				if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) ||
					strings.Contains(err.Error(), "secret")) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// A server that violates the protocol is reported.
func TestMQTTViolations(t *testing.T) {
	for name, send := range map[string]packets.Packet{
		"a PUBLISH":                      {FixedHeader: header(packets.Publish), TopicName: "a"},
		"a second CONNACK":               {FixedHeader: header(packets.Connack)},
		"a PUBACK of nothing":            {FixedHeader: header(packets.Puback), PacketID: 9},
		"a PUBACK of an identifier 0":    {FixedHeader: header(packets.Puback)},
		"a PUBACK of a large identifier": {FixedHeader: header(packets.Puback), PacketID: 60000},
		"a PUBREC instead of a PUBACK":   {FixedHeader: header(packets.Pubrec), PacketID: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &listener{version: 5, publish: func(n int, p *packets.Packet) reply {
					if n == 1 {
						return reply{send: []packets.Packet{send}}
					}
					return ack(p, 0)
				}}
				r, err := l.run(t, sim.Options{Users: 1, Posts: 3, QoS: 1})
				try(t, err)
				if r.Stored != 3 || r.Undocumented != 1 || !errors.Is(r.Fault(), sim.ErrUndocumented) ||
					!strings.Contains(r.Faults[0], "not MQTT") {
					t.Errorf("%v, %+v", r.Fault(), r)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1000))
				_, _ = io.WriteString(server, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"+strings.Repeat(" ", 100))
				server.Close()
			}()
			return client, nil
		}
		r, err := sim.Run(t.Context(), sim.Options{Users: 1, Posts: 3, QoS: 1}.OverMQTT(dial, ""))
		if !errors.Is(err, sim.ErrRefusedAll) || !strings.Contains(err.Error(), "not MQTT") {
			t.Errorf("got %v, %+v", err, r)
		}
	})
}

// An idle connection is kept alive. If the server does not answer, it is replaced.
func TestKeepAlive(t *testing.T) {
	for name, tt := range map[string]struct {
		l            *listener
		every        time.Duration
		pings, conns int
	}{
		"60 s": {&listener{version: 4}, 30 * time.Second, 19, 1},
		"shorter": {&listener{version: 5, connack: func(int) *packets.Packet {
			return &packets.Packet{FixedHeader: header(packets.Connack),
				Properties: packets.Properties{ServerKeepAliveFlag: true, ServerKeepAlive: 20}}
		}}, 10 * time.Second, 59, 1},
		"without a PINGRESP": {&listener{version: 4, silent: true}, 30 * time.Second, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := tt.l.run(t, sim.Options{Users: 1, Rate: 1. / 600, For: 601 * time.Second, QoS: 1,
					Timeout: 5 * time.Second})
				if err != nil || r.Fault() != nil || r.Stored != 2 || len(r.Errors) != 0 {
					t.Fatal(err, r.Fault(), r)
				}
				if len(tt.l.pings) < tt.pings || len(tt.l.pings) > tt.pings+1 || tt.l.conns != tt.conns {
					t.Errorf("%d PINGREQ over %d connections, want %d over %d", len(tt.l.pings), tt.l.conns, tt.pings, tt.conns)
				}
			})
		})
	}
}

// The ledger of a run has what an acknowledgement means.
func TestMQTTLedger(t *testing.T) {
	for name, tt := range map[string]struct {
		version byte
		qos     int
		batch   int
		code    byte
		want    map[string]int
	}{
		"acknowledged":                 {4, 1, 1, 0, map[string]int{"acknowledged": 20}},
		"acknowledged, QoS 2":          {5, 2, 1, 0, map[string]int{"acknowledged": 20}},
		"without matching subscribers": {5, 1, 1, 0x10, map[string]int{"acknowledged": 20}},
		"rejected":                     {5, 1, 1, 0x99, map[string]int{"refused": 20}},
		"rejected, QoS 2":              {5, 2, 1, 0x99, map[string]int{"refused": 20}},
		"rejected, perhaps in part":    {5, 1, 4, 0x99, map[string]int{"unsettled": 80}},
		"QoS 0":                        {5, 0, 1, 0, map[string]int{"unsettled": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listener{version: tt.version, publish: func(_ int, p *packets.Packet) reply {
				if tt.qos == 0 {
					return reply{}
				}
				return ack(p, tt.code)
			}}
			opt := sim.Options{Users: 2, Posts: 10, QoS: tt.qos, Batch: tt.batch, Run: "t", Seed: 1, MQTTVersion: "3.1.1"}
			if tt.version == 5 {
				opt.MQTTVersion = "5"
			}
			r, path, err := runLedger(t, opt.OverMQTT(l.dial, ""))
			try(t, err, r.Fault())
			text, err := os.ReadFile(path)
			try(t, err)
			_, lines, err := sim.ReadLedger(bytes.NewReader(text))
			try(t, err)
			fates := map[string]int{}
			for _, line := range lines {
				fates[line.Fate]++
			}
			if !reflect.DeepEqual(fates, tt.want) {
				t.Errorf("got %v, want %v; %+v", fates, tt.want, r)
			}
		})
	}
}

// bridge makes l forward what is published to an HTTP server.
func (l *listener) bridge(t *testing.T, srv *httptest.Server) {
	l.publish = func(_ int, p *packets.Packet) reply {
		device := strings.TrimPrefix(p.TopicName, "pulsegate/")
		body := strings.ReplaceAll(string(p.Payload), `{"time":`, `{"device":"`+device+`","time":`)
		if strings.Count(body, `"device":"`+device+`"`) != strings.Count(body, `"device":"`) {
			t.Errorf("topic %s with %s", p.TopicName, body)
		}
		resp, err := http.Post(srv.URL+"/v1/readings", "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return reply{hangUp: true}
		}
		defer resp.Body.Close()
		code := byte(0)
		if resp.StatusCode != http.StatusOK && p.ProtocolVersion == 5 {
			code = 0x99
		}
		return ack(p, code)
	}
}

// Whatever gateways do over MQTT, the ledger says what is stored.
func TestMQTTVerifies(t *testing.T) {
	for _, version := range mqttVersions {
		for qos := 1; qos <= 2; qos++ {
			srv := serve(t, &backend{Memory: storetest.NewMemory()}, nil)
			l := &listener{version: version}
			l.bridge(t, srv)
			opt := sim.Options{Users: 8, Devices: 13, Batch: 7, Posts: 20, Run: "t", Seed: 9, Patience: 2 * time.Minute,
				QoS: qos, Mix: realMix(t), MQTTVersion: map[byte]string{4: "3.1.1", 5: "5"}[version]}
			report, path, err := runLedger(t, opt.OverMQTT(l.dial, ""))
			if err != nil || report.Fault() != nil {
				t.Fatal(err, report.Fault())
			}
			for _, b := range []string{"batch", "buffer", "drop", "forward", "reorder", "malformed"} {
				if report.Behaviours[b] == 0 {
					t.Errorf("no request with behaviour %s", b)
				}
			}
			if report.Behaviours["gzip"] != 0 || report.Rejected != report.Behaviours["malformed"] || report.Failed != 0 {
				t.Errorf("got %+v", report)
			}
			v, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)})
			try(t, err)
			if !v.OK() || v.Acknowledged == 0 || v.Acknowledged != v.Stored || v.Unsettled != 0 {
				t.Errorf("version %d, QoS %d: got %+v", version, qos, v)
			}
		}
	}
}
