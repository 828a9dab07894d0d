package main

import (
	"context"
	"time"
)

// An outlet is how readings get to a server.
type outlet struct {
	open    func(ctx context.Context) (sink, error)
	encoder func() encoder // for one connection
}

// ownOutlet is the outlet to Pulsegate.
func ownOutlet(addr string) outlet { return outlet{openOwn(addr, ""), jsonArray} }

// A flow is a load of batches of wearers over several connections, each of which sends
// the next batch when the last one is stored.
type flow struct {
	outlet
	groups []*wearers // of batchReadings devices each, or fewer
	conns  int
}

// newFlow returns a flow over at most conns connections.
func newFlow(devices, signs, conns int, start time.Time, to outlet) *flow {
	n := (devices + batchReadings - 1) / batchReadings
	f := &flow{outlet: to, conns: min(conns, n)}
	for i := range n {
		f.groups = append(f.groups, newWearers(devices, n, i, signs, start))
	}
	return f
}

// run sends batches batches. If batches is negative it sends until ctx is done. It
// returns what was stored also with an error.
func (f *flow) run(ctx context.Context, batches int) (flowed, error) {
	return inParallel(ctx, f.conns, func(ctx context.Context, i int, start time.Time, p *flowed) error {
		share := -1 // no end
		if batches >= 0 {
			share = (batches + f.conns - 1 - i) / f.conns
		}
		return f.send(ctx, i, share, start, p)
	})
}

// send sends the share of connection i: batches of its groups in turn.
func (f *flow) send(ctx context.Context, i, share int, start time.Time, p *flowed) error {
	s, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	samples := make([]sample, batchReadings)
	encode, batch := f.encoder(), []byte(nil)
	for n, g := 0, i; share < 0 || n < share; n++ {
		f.groups[g].fill(samples)
		batch = encode(batch[:0], samples)
		if g += f.conns; g >= len(f.groups) {
			g = i
		}
		if err := p.store(ctx, s, start, batch); err != nil {
			return err
		}
	}
	return nil
}
