package ingest

import "github.com/pulsegate/pulsegate/internal/storage"

// hasUnits reports whether the readings may form units of several readings.
func (b *batch) hasUnits() bool { return b.intake.Units || b.intake.Whole }

// keepUnits drops the readings of units of which a reading was rejected.
func (b *batch) keepUnits() {
	if b.intake.Whole {
		if len(b.Refused) > 0 {
			b.Readings, b.Index = b.Readings[:0], b.Index[:0]
		}
		return
	}
	refused := b.Refused
	b.keep(func(i int) bool {
		for len(refused) > 0 && refused[0].Index < int(b.Index[i]) {
			refused = refused[1:]
		}
		return len(refused) == 0 || refused[0].Index > int(b.Index[i])
	})
}

// markUnits sets the units of the readings' entries. The store settles each as a whole.
func (b *batch) markUnits(entries []storage.Entry) {
	if b.intake.Whole && len(entries) > 0 {
		entries[0].Unit = int32(len(entries))
		return
	}
	first := 0
	for i := range entries {
		if b.Index[i] != b.Index[first] {
			first = i
		}
		entries[first].Unit++
	}
}

// groupOf returns the number of entries, from the first, that are committed together: at most most, but
// whole units.
func groupOf(entries []storage.Entry, most int) int {
	n, most := 0, min(len(entries), most)
	if entries[0].Unit == 0 { // no entry is in a unit
		return most
	}
	for n < most {
		unit := int(entries[n].Unit)
		if n > 0 && n+unit > most {
			break
		}
		n += unit
	}
	return n
}
