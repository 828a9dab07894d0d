package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// mqttCommand compares publications of MQTT with single readings over HTTP, and with a broker that
// stores nothing.
type mqttCommand struct {
	loads
	Connections int           `default:"1000" help:"Number of connections that send readings."`
	Idle        int           `default:"10000" help:"Idle connections to measure."`
	IdleWait    time.Duration `default:"5s" help:"Time after which idle connections are measured."`
}

func (c *mqttCommand) Validate() error {
	if c.Connections < 1 || c.Idle < 1 || c.IdleWait <= 0 {
		return errors.New("--connections, --idle and --idle-wait must be positive")
	}
	return c.loads.Validate()
}

// A receiver is a server that takes readings.
type receiver struct {
	name, what        string
	mqtt, tls, broker bool
}

const mosquitto = "Mosquitto"

func receivers() []receiver {
	return []receiver{
		{name: "HTTP", what: "`POST /v1/readings`"},
		{name: "MQTT", what: "`PUBLISH`, QoS 1", mqtt: true},
		{name: mosquitto, what: "`PUBLISH`, QoS 1; no persistence, no subscriber, no log", mqtt: true, broker: true},
		{name: "HTTP over TLS", what: "the same with TLS 1.3 and a token in every request", tls: true},
		{name: "MQTT over TLS", what: "the same with TLS 1.3 and a token in CONNECT", mqtt: true, tls: true},
	}
}

// An mqttRun is one run of the command.
type mqttRun struct {
	*mqttCommand
	work   string
	secure *secure
}

func (c *mqttCommand) Run(ctx context.Context, out io.Writer) (err error) {
	if err := raiseFileLimit(max(c.Connections, c.Idle)); err != nil {
		return err
	}
	setting := c.setting("bench-mqtt")
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &mqttRun{mqttCommand: c, work: work}
	if b.secure, err = newSecure(ctx, work, c.own()); err != nil {
		return err
	}
	chosen := receivers()
	r := report.Report{Setting: setting}
	if _, err := exec.LookPath("mosquitto"); err != nil {
		chosen = append(chosen[:2], chosen[3:]...)
		r.Left = append(r.Left, "Mosquitto, because it is not installed (Debian: `apt-get install mosquitto`)")
	}
	single := &report.Table{Head: "server", Columns: []report.Column{
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.1f"},
		{Title: "x HTTP", Figure: "cpu", Format: "%.2f", Base: "HTTP"},
		{Title: "x HTTP over TLS", Figure: "cpu", Format: "%.2f", Base: "HTTP over TLS"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
	}}
	idle := &report.Table{Text: fmt.Sprintf("%d idle connections, each of which has sent a reading:", c.Idle), Head: "server", Columns: []report.Column{
		{Title: "heap, bytes a connection", Figure: "heap", Format: "%.0f"},
		{Title: "resident, bytes a connection", Figure: "resident", Format: "%.0f"},
	}}
	for round := range c.Rounds {
		for i := range chosen {
			// The order rotates, so that no server always runs after the same one.
			v := &chosen[(i+round)%len(chosen)]
			label := fmt.Sprintf("**%s**: %s", v.name, v.what)
			f, err := b.load(ctx, v, round)
			if err != nil {
				return fmt.Errorf("measure %s: %w", v.name, err)
			}
			single.Add(out, round, v.name, label, f)
			if v.broker || round > 0 { // what the collector finds in use hardly varies
				continue
			}
			if f, err = b.rest(ctx, v, round); err != nil {
				return fmt.Errorf("measure idle connections of %s: %w", v.name, err)
			}
			idle.Add(out, round, v.name, label, f)
		}
	}
	r.Notes = []string{
		fmt.Sprintf("Load: %d connections, each of which sends a reading when the one before is acknowledged; the loader is a part of the program, on the same CPUs. HTTP and MQTT send the same readings, of %d bytes in JSON; a topic has the device", c.Connections, len(newSender("", 0, nil).reading())),
		fmt.Sprintf("Rounds: %d, in each of which every server is restarted, warmed up for %v and loaded for %v; the order rotates by one server in each round. Idle connections are measured in the first one", c.Rounds, c.WarmUp, c.duration()),
		"Data: on " + fileSystem(work),
	}
	r.Text = "CPU is user and system time of the server's process, divided by the readings that it acknowledged; handshakes and CONNECT are not in it. " +
		"Ratios are computed within a round. Heap is what Go's collector finds in use, and resident is VmRSS, " + fmt.Sprint(c.IdleWait) + " after the last reading, less what they were before. " + rounded
	r.Tables = []*report.Table{single, idle}
	cpu := func(row, base string, limit float64) report.Bar {
		return report.Bar{What: "CPU of " + row + " / that of " + base, Row: row, Base: base, Figure: "cpu", Limit: limit, Format: "%.2f"}
	}
	r.Goals = append(single.Goals(cpu("MQTT", "HTTP", 0.9), cpu("MQTT", mosquitto, 1), cpu("MQTT over TLS", "HTTP over TLS", 1)),
		idle.Goals(report.Bar{What: "heap of an idle connection of MQTT, bytes", Row: "MQTT", Figure: "heap", Limit: 1023, Format: "%.0f"},
			report.Bar{What: "heap of an idle connection of MQTT over TLS / that of HTTP over TLS", Row: "MQTT over TLS", Base: "HTTP over TLS", Figure: "heap", Limit: 1.05, Format: "%.2f"})...)
	return c.write(out, "bench-mqtt", r.Markdown())
}

// start starts a server with an empty directory.
func (b *mqttRun) start(ctx context.Context, v *receiver, label string) (*process, error) {
	dir := filepath.Join(b.work, label+" "+v.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	if v.broker {
		return startMosquitto(ctx, dir)
	}
	// By default, each listener gets half of the files that the server may open.
	flags := []string{"--mqtt-addr=127.0.0.1:0", fmt.Sprint("--max-conns=", 2*max(b.Connections, b.Idle))}
	if v.tls {
		flags = append(flags, b.secure.flags(true)...)
	}
	p, err := b.startOwn(ctx, dir, nil, flags...)
	if err == nil && v.mqtt {
		p.public = p.mqtt
	}
	return p, err
}

func startMosquitto(ctx context.Context, dir string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	file := filepath.Join(dir, "mosquitto.conf")
	config := "listener " + port + " 127.0.0.1\nallow_anonymous true\npersistence false\nlog_dest none\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of Mosquitto: %w", err)
	}
	return startOn(ctx, addr, exec.Command("mosquitto", "-c", file))
}

// load measures the CPU time of a fresh server under load.
func (b *mqttRun) load(ctx context.Context, v *receiver, round int) (f report.Figures, err error) {
	p, err := b.start(ctx, v, fmt.Sprint("load ", round))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	senders, err := b.connect(ctx, v, p.public, b.Connections)
	defer closeAll(senders)
	if err != nil {
		return nil, err
	}
	total := func() (n uint64) {
		for _, s := range senders {
			n += s.acknowledged.Load()
		}
		return n
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	failed := make(chan error, len(senders))
	for _, s := range senders {
		wg.Go(func() {
			for !stop.Load() {
				if err := s.send(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err = sleep(ctx, b.WarmUp)
	first, began := total(), time.Now()
	cpu, errCPU := cpuDuring([]int{p.pid()}, func() error { return sleep(ctx, b.duration()) })
	n, took := total()-first, time.Since(began)
	stop.Store(true)
	wg.Wait()
	close(failed)
	if err = errors.Join(err, errCPU, <-failed, p.stop()); err != nil {
		return nil, err
	}
	if stored, ok := p.stored(); !v.broker && (!ok || stored != total()) {
		return nil, fmt.Errorf("%d readings were acknowledged and %d are stored", total(), stored)
	}
	return per(n, took, cpu, 0), nil
}

// rest measures the memory of idle connections of a fresh server. As many were opened and closed before.
func (b *mqttRun) rest(ctx context.Context, v *receiver, round int) (f report.Figures, err error) {
	p, err := b.start(ctx, v, fmt.Sprint("idle ", round))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var before report.Figures
	for i := range 2 {
		senders, err := b.connect(ctx, v, p.public, b.Idle)
		defer closeAll(senders)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			closeAll(senders)
		}
		if err := sleep(ctx, b.IdleWait); err != nil {
			return nil, err
		}
		if f, err = held(ctx, p); err != nil {
			return nil, err
		}
		if i == 0 {
			before = f
		}
	}
	for name := range f {
		f[name] = (f[name] - before[name]) / float64(b.Idle)
	}
	return f, nil
}

// held returns the memory of Pulsegate after a garbage collection.
func held(ctx context.Context, p *process) (report.Figures, error) {
	if _, err := exchange(ctx, http.MethodGet, "http://"+p.admin+"/debug/pprof/heap?gc=1", nil, nil); err != nil {
		return nil, fmt.Errorf("collect garbage: %w", err)
	}
	values, err := scrape(ctx, p.admin)
	if err != nil {
		return nil, err
	}
	now, err := memory(p.pid())
	heap, ok := values["go_memstats_heap_alloc_bytes"]
	if !ok {
		err = errors.Join(err, errors.New("read heap: the metric is missing"))
	}
	return report.Figures{"heap": heap, "resident": float64(now.VmRSS)}, err
}

// A sender is a connection that sends one reading after another.
type sender struct {
	net.Conn
	device, value int
	at            time.Time
	head          []byte // of a request of HTTP; nil means MQTT
	packet, body  []byte // the last ones
	answer        [1024]byte
	acknowledged  atomic.Uint64
}

// devicesEach is the number of devices whose readings a sender sends in rotation.
const devicesEach = 10

func newSender(addr string, number int, s *secure) *sender {
	token := ""
	if s != nil {
		token = "Authorization: Bearer " + s.token + "\r\n"
	}
	return &sender{device: number * devicesEach, at: time.Now().Add(-baseAge),
		head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: ", path, addr, token)}
}

// dialers is the number of connections opened at the same time.
const dialers = 64

// connect opens n connections, each of which sends a reading.
func (b *mqttRun) connect(ctx context.Context, v *receiver, addr string, n int) (all []*sender, err error) {
	for len(all) < n && err == nil {
		opened := make([]*sender, min(dialers, n-len(all)))
		failed := make([]error, len(opened))
		var wg sync.WaitGroup
		for i := range opened {
			wg.Go(func() { opened[i], failed[i] = b.dial(ctx, v, addr, len(all)+i) })
		}
		wg.Wait()
		for i := range opened {
			if opened[i] != nil {
				all = append(all, opened[i])
			}
		}
		err = cmp.Or(failed...)
	}
	return all, err
}

// dial opens a connection, with a CONNECT if it is one of MQTT, and sends a reading.
func (b *mqttRun) dial(ctx context.Context, v *receiver, addr string, number int) (_ *sender, err error) {
	var secure *secure
	if v.tls {
		secure = b.secure
	}
	s := newSender(addr, number, secure)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+number%idleAddresses))}}
	if s.Conn, err = dialer.DialContext(ctx, "tcp", addr); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if v.tls {
		s.Conn = tls.Client(s.Conn, &tls.Config{InsecureSkipVerify: true}) // the server's address is known
	}
	if v.mqtt {
		s.head = nil
		err = s.open(number, secure)
	}
	if err == nil {
		err = s.send()
	}
	return s, err
}

// open sends a CONNECT of MQTT 3.1.1.
func (s *sender) open(number int, secure *secure) error {
	flags, credentials := byte(2), []byte(nil) // a clean session
	if secure != nil {
		flags |= 0xc0
		credentials = field(field(nil, "bench"), secure.token)
	}
	const keepAlive = 1200 // seconds
	body := append(field(nil, "MQTT"), 4, flags, keepAlive>>8, keepAlive&0xff)
	body = append(field(body, fmt.Sprint("bench-", number)), credentials...)
	return s.exchange(append(binary.AppendUvarint([]byte{0x10}, uint64(len(body))), body...), []byte{0x20, 2, 0, 0})
}

// field appends a field of a packet.
func field(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// reading returns the next reading.
func (s *sender) reading() []byte {
	s.value++
	if s.value%devicesEach == 0 {
		s.at = s.at.Add(time.Millisecond)
	}
	n := s.value
	s.body = append(s.body[:0], `{"device":"`...)
	s.body = append(s.name(s.body), `","time":"`...)
	s.body = s.at.UTC().AppendFormat(s.body, stampForm)
	s.body = fmt.Appendf(s.body, `","systolic_mmhg":%d,"diastolic_mmhg":%d,"spo2_pct":%d.5,"heart_rate_bpm":%d.5,"resting_heart_rate_bpm":%d.5}`,
		110+n%40, 60+n%30, 90+n%10, 60+n%37, 50+n%20)
	return s.body
}

func (s *sender) name(b []byte) []byte {
	return fmt.Appendf(b, "wearable-%06d", s.device+s.value%devicesEach)
}

// send sends the next reading and waits until it is acknowledged.
func (s *sender) send() (err error) {
	if err := s.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	reading := s.reading()
	if s.head != nil {
		s.packet = fmt.Appendf(append(s.packet[:0], s.head...), "%d\r\n\r\n%s", len(reading), reading)
		err = s.exchange(s.packet, []byte(`{"status":"stored"}`+"\n"))
	} else {
		topic := s.name([]byte("pulsegate/"))
		id := binary.BigEndian.AppendUint16(nil, uint16(1+s.value%60_000))
		s.packet = binary.AppendUvarint(append(s.packet[:0], 0x32), uint64(2+len(topic)+2+len(reading)))
		s.packet = append(append(field(s.packet, string(topic)), id...), reading...)
		err = s.exchange(s.packet, append([]byte{0x40, 2}, id...))
	}
	if err == nil {
		s.acknowledged.Add(1)
	}
	return err
}

// exchange sends a message and reads the answer, which must end with want.
func (s *sender) exchange(message, want []byte) error {
	if _, err := s.Write(message); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	for n := 0; !bytes.HasSuffix(s.answer[:n], want); {
		m, err := s.Read(s.answer[n:])
		if n += m; err != nil || n == len(s.answer) {
			return fmt.Errorf("read answer: %w: got %q", err, s.answer[:n])
		}
	}
	return nil
}

func closeAll(senders []*sender) {
	conns := make([]net.Conn, 0, len(senders))
	for _, s := range senders {
		conns = append(conns, s.Conn)
	}
	hangUp(conns)
}
