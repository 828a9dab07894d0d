package ingest

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Reasons for which a body is not read, except that it is too large. They must not be modified.
var (
	errOverloaded = &refusal{kind: refusedOverloaded}
	errWindow     = &refusal{kind: refusedTooLarge, detail: "A zstd window may have 8 MiB."}
	errDamaged    = &refusal{kind: refusedMalformed, detail: "The compressed body is damaged or cut off."}
	errUnknownCE  = &refusal{kind: refusedEncoding, detail: "Send gzip, zstd, or no Content-Encoding."}
	errTimeout    = &refusal{kind: refusedTimeout}
	errCutOff     = &refusal{kind: refusedMalformed,
		detail: "The body ended before its announced length, or its framing is not valid."}
)

// A bodyReader reads bodies into pooled buffers, and decompresses them. Its methods may be
// called from many goroutines.
type bodyReader struct {
	core    *Core
	buffers sync.Pool // of *buffer
	gzips   sync.Pool // of *gzip.Reader
	zstds   sync.Pool // of *zstd.Decoder
}

// A buffer holds one body. Its memory counts against Config.MaxBodyBytes from read to release.
type buffer struct {
	bytes   []byte
	counted int
	holder  *share.Holder // to which counted is charged
}

// Bounds of memory.
const (
	firstBufferBytes = 4 << 10
	maxFirstBytes    = 64 << 10
	maxKeptBytes     = 1 << 20 // a larger buffer is left to the garbage collector

	// zstdWindowBytes is the largest window of a zstd body: the 8 MiB that RFC 8878, section
	// 3.1.1.1.2, recommends decoders to support. A decoder counts as that much memory.
	zstdWindowBytes = 8 << 20
)

// read reads a whole body and decompresses it according to encoding. sizeHint is the length
// that the client announced, or negative. The error is a *refusal or that of the connection.
// The caller must release the buffer, also after an error.
func (br *bodyReader) read(src io.Reader, h *share.Holder, encoding string, sizeHint int64) (*buffer, error) {
	buf, _ := br.buffers.Get().(*buffer)
	if buf == nil || !br.core.memory.Reserve(h, cap(buf.bytes)) {
		buf = new(buffer) // it grows only as this body needs
	}
	buf.counted, buf.holder = cap(buf.bytes), h

	switch {
	case encoding == "" || strings.EqualFold(encoding, "identity"):
		if sizeHint > int64(br.core.cfg.MaxBatchBytes) {
			return buf, br.core.answers.errTooLarge
		}
		// One byte more than announced, so that the end is found without growing. A client that
		// announces much and sends little gets no more than this.
		if sizeHint >= 0 {
			if err := br.grow(buf, int(min(sizeHint+1, maxFirstBytes))); err != nil {
				return buf, err
			}
		}
		return buf, br.fill(buf, src)
	case strings.EqualFold(encoding, "gzip") || strings.EqualFold(encoding, "x-gzip"):
		return buf, br.readGzip(buf, src)
	case strings.EqualFold(encoding, "zstd"):
		return buf, br.readZstd(buf, src)
	}
	return buf, errUnknownCE
}

// release returns a buffer to the pool.
func (br *bodyReader) release(buf *buffer) {
	br.core.memory.Release(buf.holder, buf.counted)
	buf.counted, buf.holder = 0, nil
	if cap(buf.bytes) <= maxKeptBytes {
		buf.bytes = buf.bytes[:0]
		br.buffers.Put(buf)
	}
}

// fill reads src to its end.
func (br *bodyReader) fill(buf *buffer, src io.Reader) error {
	limit := br.core.cfg.MaxBatchBytes
	for {
		if len(buf.bytes) == cap(buf.bytes) {
			if err := br.grow(buf, max(2*cap(buf.bytes), firstBufferBytes)); err != nil {
				return err
			}
		}
		n, err := src.Read(buf.bytes[len(buf.bytes):cap(buf.bytes)])
		buf.bytes = buf.bytes[:len(buf.bytes)+n]
		switch {
		case len(buf.bytes) > limit:
			return br.core.answers.errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// grow makes the capacity n bytes, or the maximum for a body if that is less.
func (br *bodyReader) grow(buf *buffer, n int) error {
	n = min(n, br.core.cfg.MaxBatchBytes+1)
	if n <= cap(buf.bytes) {
		return nil
	}
	more := n - cap(buf.bytes)
	if !br.core.memory.ReserveFor(buf.holder, more, n) {
		return errOverloaded
	}
	buf.counted += more
	grown := make([]byte, len(buf.bytes), n)
	copy(grown, buf.bytes)
	buf.bytes = grown
	return nil
}

// readGzip reads a gzip body (RFC 1952), of one or several members.
func (br *bodyReader) readGzip(buf *buffer, src io.Reader) error {
	in := &sourceReader{src: src}
	gz, _ := br.gzips.Get().(*gzip.Reader)
	if gz == nil {
		gz = new(gzip.Reader)
	}
	defer br.gzips.Put(gz)
	err := gz.Reset(in)
	if err == nil {
		err = br.fill(buf, gz)
	}
	return in.blame(err)
}

// readZstd reads a zstd body (RFC 8878), of one or several frames.
func (br *bodyReader) readZstd(buf *buffer, src io.Reader) error {
	if !br.core.memory.ReserveFor(buf.holder, zstdWindowBytes, zstdWindowBytes) {
		return errOverloaded
	}
	defer br.core.memory.Release(buf.holder, zstdWindowBytes)
	in := &sourceReader{src: src}
	z, _ := br.zstds.Get().(*zstd.Decoder)
	if z == nil {
		var err error
		// With a concurrency of 1 the decoder starts no goroutines, so that none leak when the
		// pool drops it.
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowBytes),
			zstd.WithDecoderMaxMemory(uint64(br.core.cfg.MaxBatchBytes)+zstdWindowBytes))
		if err != nil {
			panic("ingest: " + err.Error()) // the options are constant
		}
	}
	err := z.Reset(in)
	if err == nil {
		err = br.fill(buf, z)
	}
	_ = z.Reset(nil) // drop the reference to src; the error only reports the empty input
	br.zstds.Put(z)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return br.core.answers.errTooLarge
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return errWindow
	}
	return in.blame(err)
}

// A sourceReader records errors of the source, so that a broken connection is not taken for
// a damaged body.
type sourceReader struct {
	src io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// blame replaces an error of a decompressor by errDamaged, unless the source or a limit caused
// it.
func (s *sourceReader) blame(err error) error {
	if s.err != nil {
		return s.err
	}
	if _, ok := errors.AsType[*refusal](err); err == nil || ok {
		return err
	}
	return errDamaged
}
