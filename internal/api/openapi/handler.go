package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/pulsegate/pulsegate/reply"
)

// Path is the address of the document.
const Path = "/openapi.json"

// A variant is the document in one encoding.
type variant struct {
	etag            string
	full, unchanged *reply.Answer
}

func newVariant(etag string, body []byte, more ...reply.Option) variant {
	// The document changes with the program and its options, so a client asks each time.
	opts := append(more, reply.Header("ETag", etag), reply.Header("Cache-Control", "no-cache"))
	return variant{etag, reply.New(http.StatusOK, "application/json", body, opts...), reply.New(http.StatusNotModified, "", nil, opts...)}
}

// Handler returns a handler for GET and HEAD that serves a document, compressed if the
// client accepts that.
func Handler(document []byte) http.Handler {
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is constant
	}
	_, _ = z.Write(document) // a bytes.Buffer accepts everything
	_ = z.Close()
	sum := sha256.Sum256(document)
	tag := hex.EncodeToString(sum[:8])
	plain := newVariant(`"`+tag+`"`, document)
	zipped := newVariant(`"`+tag+`-gzip"`, small.Bytes(), reply.Header("Content-Encoding", "gzip"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		v := &plain
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			v = &zipped
		}
		if known := r.Header.Get("If-None-Match"); known == "*" || strings.Contains(known, v.etag) {
			v.unchanged.ServeHTTP(w, r)
			return
		}
		v.full.ServeHTTP(w, r)
	})
}

// acceptsGzip reports whether an Accept-Encoding names gzip with a weight other than 0.
func acceptsGzip(field string) bool {
	for item := range strings.SplitSeq(field, ",") {
		name, params, _ := strings.Cut(item, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		weight := strings.TrimPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		return weight == "" || strings.Trim(weight, "0.") != ""
	}
	return false
}
