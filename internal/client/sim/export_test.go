package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// WithDial makes a run use connections from dial instead of the network.
func (opt Options) WithDial(dial func(context.Context) (net.Conn, error)) Options {
	opt.dial = dial
	return opt
}

// OverMQTT makes a run use MQTT over connections from dial.
func (opt Options) OverMQTT(dial func(context.Context) (net.Conn, error), user string) Options {
	opt.dial, opt.MQTT = dial, &Target{url: "mqtt://pipe", user: user}
	return opt
}

// A Packet is a parsed packet of a server.
type Packet struct {
	Kind, Code byte
	ID         uint16
}

// ParsePackets parses the packets of a server until one is incomplete.
func ParsePackets(version byte, text []byte, sizes ...int) (all []Packet, err error) {
	r := newPacketReader(&pieces{text, sizes}, version)
	for {
		p, err := r.next()
		switch {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return all, err
		}
		all = append(all, Packet{p.FixedHeader.Type, p.ReasonCode, p.PacketID})
	}
}

// AppendPublish and AppendPubrel encode packets of a client.
func AppendPublish(version, qos byte, id uint16, topic string, payload []byte) []byte {
	return appendPublish(nil, version, qos, id, []byte(topic), payload)
}

func AppendPubrel(id uint16) []byte { return appendPubrel(nil, id) }

// InShares makes a verification compare so many bytes of the ledger at a time.
func (opt VerifyOptions) InShares(bytes int64) VerifyOptions {
	opt.shareBytes = bytes
	return opt
}

// A Parsed is a parsed answer.
type Parsed struct {
	Status                  int
	Body                    string
	Close                   bool
	RetryAfter, ContentType string
	Complete                bool
}

// A pieces is a connection that delivers bytes in pieces of the given sizes, repeating
// the last size, and then ends.
type pieces struct {
	left  []byte
	sizes []int
}

func (p *pieces) Read(into []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(into, p.left[:min(max(p.sizes[0], 1), len(p.left))])
	p.left, p.sizes = p.left[n:], p.sizes[min(1, len(p.sizes)-1):]
	return n, nil
}

// ParseResponse parses an answer that arrives in pieces.
func ParseResponse(in []byte, sizes ...int) (Parsed, error) {
	var r answerReader
	r.reset(&pieces{in, sizes})
	got, err := r.read()
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return Parsed{}, nil
	case err != nil:
		return Parsed{}, err
	}
	parsed := Parsed{got.status, string(got.body), got.close, got.retryAfter, got.contentType, true}
	if _, err := r.in.Peek(1); err != io.EOF {
		return Parsed{}, ErrProtocol // more than one answer
	}
	return parsed, nil
}

// Schedule returns the intended send time of request k at a rate, and how many requests
// a run of length d has.
func Schedule(perSecond float64, k uint64, d time.Duration) (intended time.Duration, total uint64) {
	return pacer(perSecond).intended(k), pacer(perSecond).total(d)
}

// A Judgement is the classification of an answer.
type Judgement struct {
	Verdict           string
	Stored, Duplicate int
	Rejected          []int
	Problem           string
	RetryAfter        time.Duration
}

// Judge classifies the text of an answer.
func Judge(text string, single bool, n int, now time.Time) (Judgement, error) {
	return judgement(newJudge(&Options{}), text, single, n, now)
}

// JudgeLines is Judge for a request of lines in InfluxDB's protocol.
func JudgeLines(text string, n int) (Judgement, error) {
	return judgement(newJudge(&Options{Influx: true}), text, false, n, time.Time{})
}

func judgement(j *judge, text string, single bool, n int, now time.Time) (Judgement, error) {
	var reader answerReader
	reader.reset(strings.NewReader(text))
	r, err := reader.read()
	if err != nil {
		return Judgement{}, err
	}
	c := &connection{request: request{kind: batchRequest, samples: make([]sample, n)}}
	if single {
		c.request.kind = singleRequest
	}
	a := j.judge(&r, c, now)
	names := map[verdict]string{accepted: "accepted", refusedWhole: "refused whole", refusedNow: "refused now",
		uncertain: "uncertain", undocumented: "undocumented"}
	return Judgement{names[a.verdict], a.stored, a.duplicate, a.rejected, a.problem, a.retryAfter}, nil
}

// WriteProblems returns the problem types that are valid answers to a POST, with their
// statuses.
func WriteProblems() map[string]int { return newJudge(&Options{}).problems }

// A Signs is one reading of a wearer.
type Signs struct {
	TimeMs int64
	Values vitals.Values
}

// OwnSign is the field of a sign of a user's own that wearers measure.
const OwnSign = "core_difference_c"

// AllSigns returns a table with OwnSign.
func AllSigns() *vitals.Signs {
	signs := vitals.NewSigns()
	if err := signs.Define([]vitals.Definition{{
		Field: OwnSign, Label: "Difference", Unit: "Cel", Decimals: 3,
		Accepted: vitals.Range{Min: -5_000, Max: 5_000}, Usual: vitals.Range{Min: -1_500, Max: 250},
	}}); err != nil {
		panic(err)
	}
	return signs
}

// Wearer returns the first n readings of a device that measures all signs.
func Wearer(seed uint64, device, n int, start time.Time, interval time.Duration, skewed float64) []Signs {
	m := model{startMs: start.UnixMilli(), intervalMs: interval.Milliseconds(), skewed: int64(skewed * whole)}
	var err error
	if m.habits, err = habitsOf(AllSigns(), []string{"body_weight_kg", "glucose_mg_dl", "glucose_mmol_l", "pulse_rate_bpm",
		"pulse_rate_bpm"}); err != nil {
		panic(err)
	}
	w := newWearer(seed, device, &m)
	var all []Signs
	for range n {
		timeMs, values := w.next(&m)
		all = append(all, Signs{timeMs, values})
	}
	return all
}

// A Composed is a request composed by a gateway.
type Composed struct {
	Body    string
	Single  bool
	Flawed  bool
	Status  int // expected status for the flaw
	Devices []string
	TimesMs []int64
	Offsets []vitals.UTCOffset
	Values  []vitals.Values
	Gateway int32
	Drop    bool
}

// Compose returns the first n requests of each gateway of a fleet.
func Compose(opt Options, n int) (all []Composed) {
	if err := opt.Prepare(); err != nil {
		panic(err)
	}
	f := newFleet(&opt, opt.model(time.Now()))
	var r request
	for i := range n * len(f.gateways) {
		f.compose(&f.gateways[i%len(f.gateways)], &r)
		c := Composed{Body: string(f.appendBody(nil, &r)), Single: r.kind != batchRequest,
			Flawed: r.kind == malformedRequest, Gateway: r.gateway, Drop: r.drop}
		if c.Flawed {
			c.Status = flawedBodies[r.flaw].status
		}
		for _, s := range r.samples {
			c.Devices = append(c.Devices, string(f.appendDevice(nil, s.device)))
			c.TimesMs = append(c.TimesMs, s.timeMs)
			c.Offsets = append(c.Offsets, s.offset)
			c.Values = append(c.Values, s.values)
		}
		all = append(all, c)
	}
	return all
}

// Flaws returns a body for each flaw, with the expected status.
func Flaws() map[string]int {
	opt := Options{Users: 1, Devices: 1, Signs: vitals.NewSigns()}
	f := newFleet(&opt, model{startMs: dayMs, intervalMs: minuteMs})
	all := map[string]int{}
	for kind := range numFlaws {
		s := sample{timeMs: 1_795_000_000_123}
		all[string(f.appendFlawed(nil, &s, kind))] = flawedBodies[kind].status
	}
	return all
}

// Encoder returns a function that composes and encodes one request after another.
func Encoder(opt Options, gzipped bool) (next func() []byte, err error) {
	opt.dial = func(context.Context) (net.Conn, error) { return nil, io.EOF }
	if gzipped {
		opt.Mix[Gzip] = whole
	}
	if err := opt.Prepare(); err != nil {
		return nil, err
	}
	r, err := newRun(&opt, newReport(&opt))
	if err != nil {
		return nil, err
	}
	r.alarm.stop()
	id := 0
	return func() []byte {
		c := r.conns[id]
		id = (id + 1) % len(r.conns)
		r.composer.fleet.compose(c.gateway, &c.request)
		r.composer.encode(c)
		r.lines = r.composer.fleet.appendSent(r.lines[:0], 7, c.request.samples)
		return c.out
	}, nil
}

// A LedgerLine is one reading of a ledger.
type LedgerLine struct {
	Device string
	TimeMs int64
	Values vitals.Values
	Fate   string
	Offset vitals.UTCOffset
}

// ReadLedger reads a ledger to its end.
func ReadLedger(in io.Reader) (run string, lines []LedgerLine, err error) {
	l, err := newLedgerReader(in)
	if err != nil {
		return "", nil, err
	}
	names := map[outcome]string{acknowledged: "acknowledged", unsettled: "unsettled", refused: "refused"}
	err = l.each(func(e *ledgerEntry) {
		lines = append(lines, LedgerLine{l.devices[e.device], e.timeMs, e.values, names[e.outcome], e.offset})
	})
	return l.run, lines, err
}

// A LedgerScript writes chosen lines to a ledger.
type LedgerScript struct {
	fleet Fleet
	to    *Ledger
}

func ScriptLedger(to *Ledger, run string, signs *vitals.Signs) *LedgerScript {
	return &LedgerScript{Fleet{prefix: "sim-" + run + "-", signs: signs}, to}
}

func (s *LedgerScript) Sent(request uint64, device int32, timeMs int64, values vitals.Values) error {
	return s.SentAt(request, device, timeMs, 0, values)
}

// SentAt is Sent with an offset from UTC.
func (s *LedgerScript) SentAt(request uint64, device int32, timeMs int64, offset vitals.UTCOffset,
	values vitals.Values) error {
	return s.to.append(s.fleet.appendSent(nil, request, []sample{{device, timeMs, values, offset}}))
}

func (s *LedgerScript) Answered(request uint64, rejected ...int) error {
	return s.to.append(appendAnswered(nil, request, rejected))
}

func (s *LedgerScript) Refused(request uint64) error { return s.to.append(appendRefused(nil, request)) }
func (s *LedgerScript) GivenUp(request uint64) error { return s.to.append(appendGivenUp(nil, request)) }

// JudgeAck classifies the text of an answer to a message of HL7 v2.
func JudgeAck(text string, number uint64, n int) string {
	var reader answerReader
	reader.reset(strings.NewReader(text))
	message, err := reader.readMessage()
	if err != nil {
		return err.Error()
	}
	switch a := judgeAck(message.body, number, n); {
	case a.verdict == accepted:
		return fmt.Sprintf("accepted %d", a.stored)
	case a.verdict == refusedWhole && a.part:
		return "refused whole, perhaps in part: " + a.problem
	case a.verdict == refusedWhole:
		return "refused whole: " + a.problem
	}
	return "undocumented"
}
