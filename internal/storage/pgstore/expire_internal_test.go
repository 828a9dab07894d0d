package pgstore

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestPlanExpiry executes plans on a model until nothing is due: each removes something, at most as much as it may, and
// together they remove the first readings of each device first.
func TestPlanExpiry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		atMost := rapid.Int64Range(1, 3*chunkReadings).Draw(t, "atMost")
		fleet := make([]dueDevice, rapid.IntRange(1, 2*expiredDevices).Draw(t, "devices"))
		left := int64(0)
		size := rapid.SampledFrom([]int32{1, 100, chunkReadings + 1})
		for i := range fleet {
			d := &fleet[i]
			d.name = fmt.Sprintf("d%03d", i)
			d.rows = int64(rapid.Int32Range(0, size.Draw(t, "rows")).Draw(t, "rows"))
			for range rapid.IntRange(0, 4).Draw(t, "segments") {
				n := rapid.Int32Range(1, size.Draw(t, "readings")).Draw(t, "readings")
				d.add(int64(len(d.due)), n, n)
			}
			if last := len(d.due) - 1; last >= 0 {
				d.due[last] = rapid.Int32Range(1, d.readings[last]).Draw(t, "due")
			}
			left += d.all()
		}
		for after, more := "", true; more; {
			var due []dueDevice
			for i := range fleet {
				if d := &fleet[i]; d.name > after && d.all() > 0 && len(due) < expiredDevices {
					some := dueDevice{name: d.name, rows: min(d.rows, chunkReadings+1)}
					for at, n := range d.due {
						if n > 0 {
							some.add(d.lastUnixMs[at], d.readings[at], n)
						}
					}
					due = append(due, some)
				}
			}
			if len(due) == 0 {
				break
			}
			p := planExpiry(due, after, atMost)
			removed := int64(0)
			byName := map[string]*dueDevice{}
			for i := range fleet {
				byName[fleet[i].name] = &fleet[i]
			}
			for kind, names := range []segmentNames{p.whole, p.cut} {
				for i, name := range names.devices {
					d := byName[name]
					at := d.segment(names.lastUnixMs[i])
					if at < 0 || d.due[at] != names.due[i] || (d.readings[at] == d.due[at]) != (kind == 0) {
						t.Fatalf("plan %+v has a segment that %+v has not", p, d)
					}
					removed += int64(d.due[at])
					d.readings[at] -= d.due[at]
					d.due[at] = 0
				}
			}
			for i, name := range p.unseal.devices {
				d := byName[name]
				at := d.segment(p.unseal.lastUnixMs[i])
				if at != d.firstDue() {
					t.Fatalf("plan %+v unseals segment %d of %+v", p, at, d)
				}
				d.rows += int64(d.due[at])
				d.due[at] = 0
			}
			for _, name := range p.devices {
				d := byName[name]
				n := min(d.rows, p.rows)
				d.rows -= n
				removed += n
				if p.after == name && d.all() > 0 {
					t.Fatalf("%d readings of %s are left", d.all(), name)
				}
			}
			if removed == 0 || removed > atMost {
				t.Fatalf("a plan removes %d readings, want 1 to %d", removed, atMost)
			}
			left -= removed
			after, more = p.after, p.more
		}
		if left != 0 {
			t.Fatalf("%d readings are left", left)
		}
	})
}

func (d *dueDevice) add(lastUnixMs int64, readings, due int32) {
	d.lastUnixMs, d.readings, d.due = append(d.lastUnixMs, lastUnixMs), append(d.readings, readings), append(d.due, due)
}

func (d *dueDevice) all() int64 {
	all := d.rows
	for _, n := range d.due {
		all += int64(n)
	}
	return all
}

func (d *dueDevice) segment(lastUnixMs int64) int {
	for i, at := range d.lastUnixMs {
		if at == lastUnixMs {
			return i
		}
	}
	return -1
}

func (d *dueDevice) firstDue() int {
	for i, n := range d.due {
		if n > 0 {
			return i
		}
	}
	return -1
}
