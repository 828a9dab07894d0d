package fhir

import "github.com/pulsegate/pulsegate/internal/api/strictjson"

// A parser reads resources. The parts of a resource of which there may be any number are in
// slices of the parser.
type parser struct {
	*strictjson.Reader

	identifiers []identifier
	components  []sentComponent
	contained   []containedResource

	samples int // of SampledData that were converted, stored or not
}

func newParser(body []byte) *parser { return &parser{Reader: strictjson.NewReader(body)} }
