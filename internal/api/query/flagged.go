package query

import (
	"context"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A flaggedReader is a Reader that returns only the records with at least one of some
// flags.
type flaggedReader struct {
	Reader
	only   vitals.FlagSet
	limits *vitals.FlagLimits
	chunk  []storage.Record
}

// Scan implements Reader. It reads whole chunks, because few records may have a flag.
func (f *flaggedReader) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (n int, err error) {
	if f.chunk == nil {
		f.chunk = make([]storage.Record, chunkRecords)
	}
	for {
		read, err := f.Reader.Scan(ctx, r, f.chunk)
		if err != nil {
			return 0, err
		}
		for i := range f.chunk[:read] {
			if !f.limits.Flags(&f.chunk[i].Values).Intersects(f.only) {
				continue
			}
			dst[n] = f.chunk[i]
			if n++; n == len(dst) {
				return n, nil
			}
		}
		if read < len(f.chunk) {
			return n, nil
		}
		r = after(r, f.chunk[read-1].TimeUnixMs)
	}
}
