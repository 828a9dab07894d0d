package history

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// load reads all files.
func (d *directory) load(h *History) error {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), unfinished) {
			if err := os.Remove(filepath.Join(d.path, f.Name())); err != nil {
				return err
			}
		}
		text, ok := strings.CutSuffix(f.Name(), suffix)
		if number, err := strconv.ParseInt(text, 10, 64); ok && err == nil {
			d.segments = append(d.segments, segment{number: number})
			d.number = max(d.number, number)
		}
	}
	slices.SortFunc(d.segments, func(a, b segment) int { return int(a.number - b.number) })
	for i := range d.segments {
		name := d.name(d.segments[i].number)
		data, err := readAll(name)
		if err != nil {
			return err
		}
		r := &reader{h: h, d: d, server: h.server}
		if n := len(h.kept); n > 0 {
			r.untilMs = h.kept[n-1].entry.UnixMs
		}
		rest := r.file(data)
		switch {
		case rest == 0:
		case r.torn && i+1 == len(d.segments):
			d.log.Info("the end of a file of what is remembered is cut off: it was not acknowledged", "file", name,
				"bytes", rest)
		default:
			d.log.Error("a file of what is remembered is damaged", "file", name, "bytes", rest)
			h.damage = append(h.damage, Damage{r.server, r.untilMs, modified(name)})
		}
		d.segments[i].last = h.added
	}
	return nil
}

// readAll returns the content of a regular file.
func readAll(name string) ([]byte, error) {
	f, err := sharedfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// modified returns when a file was written last.
func modified(name string) int64 {
	if info, err := os.Stat(name); err == nil {
		return info.ModTime().UnixMilli()
	}
	return time.Now().UnixMilli()
}

// A reader decodes a file.
type reader struct {
	h *History
	d *directory

	server  int64 // whose run has written the file
	untilMs int64 // when the last entry was acknowledged, or the file begun
	torn    bool  // the file ends within a frame
}

// file reads the frames of a file, and returns the number of bytes that it could not read.
func (r *reader) file(data []byte) (rest int) {
	frames, ok := bytes.CutPrefix(data, []byte(fileMagic))
	if !ok {
		r.torn = len(data) < len(fileMagic)
		return len(data)
	}
	for first := true; len(frames) > 0; first = false {
		if len(frames) < frameHead {
			r.torn = true
			return len(frames)
		}
		length := binary.LittleEndian.Uint32(frames)
		if crc32.Checksum(frames[:4], castagnoli) != binary.LittleEndian.Uint32(frames[4:]) {
			return len(frames)
		}
		if r.torn = uint64(length) > uint64(len(frames)-frameHead); r.torn {
			return len(frames)
		}
		payload := frames[frameHead : frameHead+int(length)]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(frames[8:]) || !r.frame(payload, first) {
			return len(frames)
		}
		frames = frames[frameHead+int(length):]
	}
	return 0
}

// frame adds what a frame has. The first one must be a state.
func (r *reader) frame(payload []byte, first bool) bool {
	p := &decoder{b: payload}
	switch kind := p.byte(); {
	case first && kind == stateFrame:
		s := p.state()
		if p.end() {
			r.server, r.untilMs = s.server, s.nowMs
			r.d.id, r.d.run = s.id, s.run
			s.restore(r.h)
			return true
		}
	case !first && kind == entryFrame:
		e := p.entry()
		if _, err := e.decode(); p.end() && err == nil {
			r.untilMs = e.entry.UnixMs
			r.h.add(e)
			return true
		}
	case !first && kind == changeFrame:
		c := p.change()
		if p.end() {
			r.h.changes = replaced(r.h.changes, c)
			return true
		}
	}
	return false
}
