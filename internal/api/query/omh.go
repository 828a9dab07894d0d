package query

import (
	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// An omhText is the text of a page of Open mHealth: an array of data points, of which a record has
// one for each schema.
type omhText struct {
	points *omh.Encoder
	more   bool // there is a data point already
}

func (t *omhText) appendHead(dst []byte) []byte { return append(dst, '[') }

func (t *omhText) appendRecord(dst []byte, r *storage.Record, _ bool) []byte {
	dst, t.more = t.points.AppendRecord(dst, r, t.more)
	return dst
}

func (t *omhText) appendTail(dst []byte, _ string) []byte { return append(dst, "\n]\n"...) }
