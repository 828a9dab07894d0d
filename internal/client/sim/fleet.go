package sim

// A Fleet is the devices and gateways of a run. Which gateway serves which
// devices never changes: gateway g of n has the devices of which the number
// modulo n is g, or shares one device where there are more gateways.
//
// What composes requests is not safe for concurrent use.
type Fleet struct {
	prefix string // of the devices' names
	model  model
	mix    Mix
	batch  int
	// namesGateway: requests name their gateway. Where there are tokens, the server
	// takes it from them.
	namesGateway bool
	wearers      []wearer
	gateways     []gateway
	groups       int // the smaller number of gateways and devices
}

// A gateway sends the readings of its devices.
type gateway struct {
	random        random
	number        int32
	device        int32 // the next one
	batches       bool
	buffers       bool
	gzips         bool
	lines         bool // batches are NDJSON, otherwise arrays
	held          sample
	holds         bool // a reading is held back, to be sent late
	untilBuffered int32
}

// A kind of request.
type requestKind uint8

const (
	singleRequest requestKind = iota
	batchRequest
	malformedRequest
)

// A request is what a gateway wants to send.
type request struct {
	kind      requestKind
	lines     bool // a batch as NDJSON
	gzip      bool
	drop      bool // do not wait for the first answer
	forwarded bool // these readings are another gateway's too
	buffered  bool // sent at once after a time offline
	reordered bool
	flaw      flaw // of a malformed one
	gateway   int32
	samples   []sample // of a malformed one, the reading that was spoilt
}

// Buffered readings: one to six hours at one a minute.
const (
	leastBuffered = 60
	mostBuffered  = 360
)

func newFleet(cfg *Config, m model) *Fleet {
	f := &Fleet{
		prefix:       "sim-" + cfg.Run + "-",
		model:        m,
		mix:          cfg.Mix,
		batch:        cfg.Batch,
		namesGateway: cfg.Token == "" && (cfg.Target == nil || len(cfg.Target.certs) == 0),
		wearers:      make([]wearer, cfg.Devices),
		gateways:     make([]gateway, cfg.Users),
		groups:       min(cfg.Users, cfg.Devices),
	}
	for i := range f.wearers {
		f.wearers[i] = newWearer(cfg.Seed, i, &f.model)
	}
	for i := range f.gateways {
		g := &f.gateways[i]
		// Streams of gateways lie beyond those of devices, so that what gateways do
		// never changes what wearers have.
		g.random = newRandom(cfg.Seed, 1<<40+uint64(i))
		g.number = int32(i)
		g.device = int32(i % f.groups)
		g.batches = g.random.chance(f.mix[Batching])
		g.buffers = g.random.chance(f.mix[Buffering])
		g.gzips = g.random.chance(f.mix[Gzip])
		g.lines = g.random.chance(whole / 2)
		g.untilBuffered = int32(g.random.between(2, 40))
	}
	return f
}

// next returns the next reading of a gateway's devices, which take turns.
func (f *Fleet) next(g *gateway) sample {
	device := g.device
	if g.device += int32(f.groups); int(g.device) >= len(f.wearers) {
		g.device = g.number % int32(f.groups)
	}
	timeMs, values := f.wearers[device].next(&f.model)
	return sample{device, timeMs, values}
}

// compose decides on the gateway's next request. r's slice is used again.
func (f *Fleet) compose(g *gateway, r *request) {
	*r = request{gateway: g.number, gzip: g.gzips, lines: g.lines, samples: r.samples[:0]}
	rnd := &g.random
	if g.untilBuffered--; g.buffers && g.untilBuffered <= 0 {
		g.untilBuffered = int32(rnd.between(10, 60))
		r.kind, r.buffered = batchRequest, true
		f.fill(g, r, int(rnd.between(leastBuffered, mostBuffered)))
	} else if rnd.chance(f.mix[Malformed]) {
		r.kind = malformedRequest
		r.flaw = flaw(rnd.below(int64(numFlaws)))
		f.fill(g, r, 1)
		return
	} else if g.batches {
		r.kind = batchRequest
		f.fill(g, r, f.batch)
	} else if g.holds && rnd.chance(whole/4) {
		r.samples, g.holds = append(r.samples, g.held), false // late
	} else {
		f.fill(g, r, 1)
	}
	if r.kind == batchRequest && r.lines && len(r.samples) == 1 {
		r.kind = singleRequest // NDJSON of one line is one
	}
	r.drop = rnd.chance(f.mix[Drop])
	r.forwarded = rnd.chance(f.mix[Forward])
	if rnd.chance(f.mix[Reorder]) {
		r.reordered = true
		f.reorder(g, r)
	}
}

func (f *Fleet) fill(g *gateway, r *request, n int) {
	for range n {
		r.samples = append(r.samples, f.next(g))
	}
}

// reorder shuffles a batch. Of a gateway that sends one by one, it holds the
// reading back until a few later ones were sent; one that is held when the run
// ends is never sent.
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
