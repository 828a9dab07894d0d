package recording

import (
	"context"
	"io"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Replay is a Reader that never reaches the end of a recording: it returns the readings
// again and again, with the current time, for several devices. Each of them starts at a place
// of its own. It ends with its context.
type Replay struct {
	ctx      context.Context
	readings []vitals.Reading
	signs    *vitals.Signs
	devices  []vitals.Name
	every    time.Duration // between two readings of a device

	next   int // number of readings returned so far
	counts Counts
}

// NewReplay reads a recording to its end and returns a Replay of its valid rows.
func NewReplay(ctx context.Context, r Reader, devices []vitals.Name, every time.Duration) (*Replay, error) {
	p := &Replay{ctx: ctx, signs: r.Signs(), devices: devices, every: every}
	for {
		reading, _, err := r.Next()
		switch err.(type) {
		case nil:
			p.readings = append(p.readings, reading)
			continue
		case *RowError:
			continue
		}
		if err == io.EOF && len(p.readings) > 0 {
			return p, nil
		}
		return nil, err
	}
}

// Next waits until a reading is due and returns it.
func (p *Replay) Next() (vitals.Reading, int, error) {
	round, i := p.next/len(p.devices), p.next%len(p.devices)
	if i == 0 {
		select {
		case <-p.ctx.Done():
			return vitals.Reading{}, 0, io.EOF
		case <-time.After(p.every):
		}
	}
	p.next++
	reading := p.readings[(round+i*len(p.readings)/len(p.devices))%len(p.readings)]
	reading.Device, reading.TimeUnixMs, reading.UTCOffset = p.devices[i], time.Now().UnixMilli(), 0
	p.counts.Rows++
	return reading, p.counts.Rows, nil
}

// Counts implements Reader.
func (p *Replay) Counts() Counts { return p.counts }

// Text implements Reader.
func (p *Replay) Text() []byte { return nil }

// Signs implements Reader.
func (p *Replay) Signs() *vitals.Signs { return p.signs }
