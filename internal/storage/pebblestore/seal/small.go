package seal

import "github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"

// trim removes the sizes up to the last one that is not small.
func trim(d *layout.Sizes, threshold int) {
	for i := int(d.Smalls) - 1; i >= 0; i-- {
		if int(d.Small[i]) >= threshold {
			d.Smalls = uint8(copy(d.Small[:], d.Small[i+1:d.Smalls]))
			return
		}
	}
}

// Similar returns how many of the last segments of d are of similar size to be merged with the
// number of new rows after them, and how many readings they all make. Without new rows, the first
// of them is the last segment.
func Similar(d *layout.Sizes, rows int) (n, total int) {
	total = rows
	if rows == 0 && d.Smalls > 0 {
		n, total = 1, int(d.Small[d.Smalls-1])
	}
	for n < int(d.Smalls) && int(d.Small[int(d.Smalls)-1-n]) <= 2*total {
		total += int(d.Small[int(d.Smalls)-1-n])
		n++
	}
	return n, total
}

// push records the size of a new last segment.
func push(d *layout.Sizes, rows, threshold int) {
	if rows >= threshold || d.Smalls == layout.MaxSmall {
		d.Smalls = 0
		return
	}
	d.Small[d.Smalls] = uint16(rows)
	d.Smalls++
}
