package fhir

import (
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
	"github.com/pulsegate/pulsegate/vitals"
)

// A parser reads resources. The parts of a resource of which there may be any number are in
// slices of the parser.
type parser struct {
	*strictjson.Reader
	signs *vitals.Signs

	identifiers []identifier
	components  []sentComponent
	contained   []containedResource

	samples int // of SampledData that were converted, stored or not
}

func newParser(body []byte, signs *vitals.Signs) *parser {
	return &parser{Reader: strictjson.NewReader(body), signs: signs}
}
