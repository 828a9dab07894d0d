package sim

import "github.com/pulsegate/pulsegate/vitals"

// A Fleet is the devices and gateways of a run. The assignment of devices is fixed:
// gateway g of n has the devices whose number modulo n is g. If there are more gateways
// than devices, gateways share devices.
//
// Composing requests is not safe for concurrent use.
type Fleet struct {
	signs  *vitals.Signs
	prefix string // of the device names
	model  model
	mix    Mix
	batch  int
	// namesGateway means that requests name their gateway. With tokens or certificates,
	// the server takes the gateway from these.
	namesGateway bool
	// inTopic means that MQTT topics name the devices: a request has readings of one device.
	inTopic  bool
	mapped   bool // bodies are payloads of another design
	influx   bool // bodies are in InfluxDB's line protocol
	mllp     bool // requests are messages of HL7 v2
	wearers  []wearer
	gateways []gateway
	groups   int // the smaller number of gateways and devices
}

// A gateway sends the readings of its devices.
type gateway struct {
	random        random
	number        int32
	posts         int64 // left to send, closed loop
	device        int32 // next one to send
	batches       bool
	buffers       bool
	gzips         bool
	lines         bool // batches are NDJSON, otherwise arrays
	held          sample
	holds         bool // held is a reading that is sent late
	untilBuffered int32
}

// A kind of request.
type requestKind uint8

const (
	singleRequest requestKind = iota
	batchRequest
	malformedRequest
)

// A request is a request that a gateway sends.
type request struct {
	kind      requestKind
	lines     bool // a batch is sent as NDJSON
	gzip      bool
	drop      bool // do not wait for the answer of the first try
	forwarded bool // another gateway will send these readings, too
	buffered  bool // sent at once after being offline
	reordered bool
	flaw      flaw // of a malformed request
	gateway   int32
	samples   []sample // of a malformed request: the reading that was damaged
}

// Number of buffered readings: one to six hours, one per minute.
const (
	minBuffered = 60
	maxBuffered = 360
)

func newFleet(opt *Options, m model) *Fleet {
	f := &Fleet{
		signs:        opt.Signs,
		prefix:       "sim-" + opt.Run + "-",
		model:        m,
		mix:          opt.Mix,
		batch:        opt.Batch,
		namesGateway: opt.MQTT == nil && opt.Token == "" && (opt.Target == nil || len(opt.Target.certs) == 0),
		inTopic:      opt.MQTT != nil,
		influx:       opt.Influx,
		mllp:         opt.MLLP != nil,
		mapped:       opt.Mapped != "",
		wearers:      make([]wearer, opt.Devices),
		gateways:     make([]gateway, opt.Users),
		groups:       min(opt.Users, opt.Devices),
	}
	for i := range f.wearers {
		f.wearers[i] = newWearer(opt.Seed, i, &f.model)
	}
	for i := range f.gateways {
		g := &f.gateways[i]
		// Gateways use other random streams than devices, so that the behaviour of
		// gateways does not change the readings.
		g.random = newRandom(opt.Seed, 1<<40+uint64(i))
		g.number = int32(i)
		g.posts = opt.Posts
		g.device = int32(i % f.groups)
		g.batches = g.random.chance(f.mix[Batching])
		g.buffers = g.random.chance(f.mix[Buffering])
		g.gzips = g.random.chance(f.mix[Gzip])
		g.lines = g.random.chance(whole / 2)
		g.untilBuffered = int32(g.random.between(2, 40))
	}
	return f
}

// next returns the next reading of a gateway's devices, which alternate.
func (f *Fleet) next(g *gateway) sample {
	device := g.device
	if g.device += int32(f.groups); int(g.device) >= len(f.wearers) {
		g.device = g.number % int32(f.groups)
	}
	return f.read(device)
}

// read returns the next reading of a device.
func (f *Fleet) read(device int32) sample {
	timeMs, values := f.wearers[device].next(&f.model)
	s := sample{device, timeMs, values, offsetOf(device)}
	if f.influx {
		s.offset = 0 // timestamps have none
	}
	if f.mllp && s.offset == 0 {
		s.offset = vitals.MakeUTCOffset(0) // HL7 has no Z
	}
	return s
}

// compose composes the gateway's next request in r. It reuses r's slice.
func (f *Fleet) compose(g *gateway, r *request) {
	*r = request{gateway: g.number, gzip: g.gzips, lines: g.lines, samples: r.samples[:0]}
	rnd := &g.random
	if g.untilBuffered--; g.buffers && g.untilBuffered <= 0 {
		g.untilBuffered = int32(rnd.between(10, 60))
		r.kind, r.buffered = batchRequest, true
		f.fill(g, r, int(rnd.between(minBuffered, maxBuffered)))
	} else if rnd.chance(f.mix[Malformed]) {
		r.kind = malformedRequest
		r.flaw = flaw(rnd.below(int64(numFlaws)))
		f.fill(g, r, 1)
		return
	} else if g.batches {
		r.kind = batchRequest
		f.fill(g, r, f.batch)
	} else if g.holds && rnd.chance(whole/4) {
		r.samples, g.holds = append(r.samples, g.held), false // sent late
	} else {
		f.fill(g, r, 1)
	}
	if r.kind == batchRequest && r.lines && len(r.samples) == 1 {
		r.kind = singleRequest // NDJSON with one line is a single reading
	}
	r.drop = rnd.chance(f.mix[Drop])
	r.forwarded = rnd.chance(f.mix[Forward])
	if rnd.chance(f.mix[Reorder]) {
		r.reordered = true
		f.reorder(g, r)
	}
}

func (f *Fleet) fill(g *gateway, r *request, n int) {
	for i := range n {
		if f.inTopic && i > 0 {
			r.samples = append(r.samples, f.read(r.samples[0].device))
			continue
		}
		r.samples = append(r.samples, f.next(g))
	}
}

// reorder shuffles a batch. Of a single reading, it holds the reading back until a few
// later ones were sent; a reading held at the end of the run is never sent.
func (f *Fleet) reorder(g *gateway, r *request) {
	if len(r.samples) == 1 && !g.holds {
		g.held, g.holds = r.samples[0], true
		r.samples[0] = f.next(g)
		return
	}
	for i := len(r.samples) - 1; i > 0; i-- {
		j := g.random.below(int64(i + 1))
		r.samples[i], r.samples[j] = r.samples[j], r.samples[i]
	}
}
