package fhir

import (
	"bytes"
	"math/big"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// A sample is a value of SampledData.
type sample struct {
	unixMs int64
	value  vitals.Value
}

// maxSampleText bounds the length of a number in SampledData, so that arithmetic with it is cheap.
const maxSampleText = 20

// maxSampleDecimals is the largest number of decimals of the sum of an origin and a product.
const maxSampleDecimals = 2 * maxSampleText

// decimal returns a decimal of SampledData, or nil if its text is not one or is too long. It has
// no exponent, so that its length bounds its size.
func decimal(text []byte) *big.Rat {
	if len(text) == 0 || len(text) > maxSampleText {
		return nil
	}
	for i, c := range text {
		if (c < '0' || c > '9') && c != '.' && (c != '-' || i > 0) {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(string(text))
	if !ok {
		return nil
	}
	return r
}

const (
	reasonDecimal = "not a decimal number without exponent and of at most 20 characters"
	reasonSamples = "not decimals, E, L and U, with single spaces between them"
)

// setSamples unpacks SampledData (https://hl7.org/fhir/R4/datatypes.html#SampledData): sample i
// was measured i times period after the start, and its value is the origin plus factor times
// the number that was sent. E is an error, U and L are values above and below the limits of
// detection: there is no reading for them.
func (o *observed) setSamples(s *sampledData, e *effective, sign *vitals.Definition, maxSamples int) *fieldFault {
	const path = "valueSampledData"
	if fault := s.origin.check(sign); fault != nil {
		return fault.in(path + ".origin.")
	}
	origin, factor := decimal(s.origin.value), big.NewRat(1, 1)
	if s.factor != nil {
		factor = decimal(s.factor)
	}
	period := decimal(s.period)
	switch {
	case origin == nil:
		return &fieldFault{path + ".origin.value", reasonDecimal}
	case factor == nil:
		return &fieldFault{path + ".factor", reasonDecimal}
	case period == nil || !period.IsInt() || period.Sign() <= 0 || !period.Num().IsInt64() ||
		period.Num().Int64() > vitals.MaxTimeUnixMs:
		return &fieldFault{path + ".period", "not a whole number of milliseconds above 0"}
	case string(s.dimensions) != "1":
		return &fieldFault{path + ".dimensions", "not 1: a sign has one value at a time"}
	}
	periodMs := period.Num().Int64()
	texts := bytes.Count(s.data, []byte(" ")) + 1
	if texts > maxSamples {
		return &fieldFault{path + ".data", "more samples than are stored at once; send several Observations"}
	}
	o.samples = make([]sample, 0, texts)
	rest, unixMs := s.data, o.at.unixMs
	for more := true; more; unixMs += periodMs {
		var text []byte
		text, rest, more = bytes.Cut(rest, []byte(" "))
		if unixMs > vitals.MaxTimeUnixMs {
			return &fieldFault{path + ".period", "a sample would be after the year 9999"}
		}
		switch string(text) {
		case "E", "L", "U":
			continue
		}
		v := decimal(text)
		if v == nil {
			return &fieldFault{path + ".data", reasonSamples}
		}
		v.Add(v.Mul(v, factor), origin)
		value, err := sign.Parse([]byte(v.FloatString(maxSampleDecimals)))
		if err != nil {
			return &fieldFault{path + ".data", reasonOf(err)}
		}
		o.samples = append(o.samples, sample{unixMs, value})
	}
	if len(o.samples) == 0 { // each is E, U or L
		o.doubt = codes.NotAvailable
		return nil
	}
	if e.end == nil {
		return nil
	}
	endUnixMs, _, err := vitals.ParseRFC3339(e.end)
	if err != nil || endUnixMs < unixMs-periodMs {
		return &fieldFault{"effectivePeriod.end", "not a time after that of the last sample"}
	}
	return nil
}
