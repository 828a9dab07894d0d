package query

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// codings are the content codings of exports, the preferred one first. It is never modified.
var codings = [...]string{"zstd", "gzip"}

// zstdWindowBytes bounds the memory that an encoder takes, about 1 MiB, and that a client needs.
const zstdWindowBytes = 256 << 10

// preferred returns the content coding of a body for an Accept-Encoding: the one with the greatest weight, or "" for
// none. A coding that is not listed by name is not used.
func preferred(accept []string) (best string) {
	bestQ := 0.0
	for _, c := range codings {
		if q := CodingWeight(accept, c); q > bestQ {
			best, bestQ = c, q
		}
	}
	return best
}

// CodingWeight returns the weight of a content coding in an Accept-Encoding, 0 to 1. It is 0 if the coding is not
// listed.
func CodingWeight(accept []string, coding string) float64 {
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameter, _ := strings.Cut(item, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		_, q, found := strings.Cut(parameter, "=")
		if !found {
			return 1
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		if err != nil || !(n >= 0) {
			return 0
		}
		return min(n, 1)
	}
	return 0
}

// newCoder returns a writer that writes to w in a content coding. Its Close completes the body.
func newCoder(w io.Writer, coding string) (io.WriteCloser, error) {
	if coding == "gzip" {
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	}
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(zstdWindowBytes), zstd.WithLowerEncoderMem(true))
}

// coding negotiates the content coding of an answer in a format. JSON, of which pages are small, and Parquet, which is
// compressed already, have none.
func (f Format) coding(w http.ResponseWriter, r *http.Request) string {
	if f == JSON || f == Parquet {
		return ""
	}
	w.Header().Add("Vary", "Accept-Encoding")
	return preferred(r.Header["Accept-Encoding"])
}
