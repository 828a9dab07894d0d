package recording

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// rows makes readings of the rows that a shape describes, and counts them.
type rows struct {
	opt    Options
	signs  *vitals.Signs
	counts Counts
	rules  *vitals.Validator
}

func newRows(opt Options) rows {
	return rows{opt: opt, signs: opt.signs(), rules: AnyValue(opt.signs(), vitals.DefaultOldestUnixMs)}
}

func (s *rows) Counts() Counts { return s.counts }

func (s *rows) Signs() *vitals.Signs { return s.signs }

// reading converts the cells of a row to a reading, which has no signs if the row is left out.
func (s *rows) reading(f *shape.Shape, cells shape.Cells) (r vitals.Reading, _ *RowError) {
	if f.Ignore {
		s.counts.Ignored++
		return r, nil
	}
	for i := range f.Signs {
		sign := &f.Signs[i]
		v, got, err := f.Value(sign, cells)
		switch {
		case err != nil:
			return r, &RowError{Field: sign.Field, Err: err}
		case got == shape.NotValue:
			s.counts.Missing++
		case got == shape.Nothing:
		case noSignal(sign.Definition, v):
			s.counts.Zeros++
		default:
			if got == shape.Rounded {
				s.counts.Rounded++
			}
			r.Values.Set(sign.Number, v)
		}
	}
	if r.Values.IsZero() {
		s.counts.NoSign++
		return r, nil
	}
	if field, err := f.Origin(cells, vitals.Origin{}, &r); err != nil {
		if !errors.Is(err, vitals.ErrMissing) || field != "device" || s.opt.Device.IsZero() {
			return r, &RowError{Field: field, Err: err}
		}
		r.Device = s.opt.Device
	}
	if err := f.When(cells, shape.Moment{Rules: s.rules, NowUnixMs: vitals.MaxTimeUnixMs}, &r); err != nil {
		return r, &RowError{Field: "time", Err: err}
	}
	r.TimeUnixMs += s.opt.ShiftMs
	if s.opt.Sources != nil {
		s.opt.Sources.add(&r, f.Source(cells))
	}
	return r, nil
}

// Sources has the hashes of the sources of each sign, whose texts may be long, and names of persons.
type Sources map[vitals.Sign]map[[sha256.Size]byte]bool

// maxSources bounds the distinct sources of a sign.
const maxSources = 1000

func (s Sources) add(r *vitals.Reading, source []byte) {
	hash := sha256.Sum256(source)
	for sign := range vitals.Sign(vitals.MaxSigns) {
		if !r.Values.Has(sign) {
			continue
		}
		if s[sign] == nil {
			s[sign] = map[[sha256.Size]byte]bool{}
		}
		if len(s[sign]) < maxSources {
			s[sign][hash] = true
		}
	}
}

// Most returns the sign that has most sources, and their number.
func (s Sources) Most() (sign vitals.Sign, n int) {
	for _, one := range slices.Sorted(maps.Keys(s)) {
		if len(s[one]) > n {
			sign, n = one, len(s[one])
		}
	}
	return sign, n
}
