package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// erasureFile describes an unfinished erasure, which the next start must finish:
//
//	pulsegate erasure 1 purge
//	device ppg-000123
//	readings 86400
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything before it. The steps are
//
//	remove   the readings of the device must be removed, including all acknowledged
//	         so far
//	purge    the readings were removed; their bytes may still be in files
const erasureFile = "ERASING"

const (
	erasureHeader   = "pulsegate erasure 1 "
	maxErasureBytes = 1024
)

type erasureStep string

const (
	stepRemove erasureStep = "remove"
	stepPurge  erasureStep = "purge"
)

// An intent is the content of erasureFile.
type intent struct {
	step erasureStep
	storage.Erasure
}

func (in *intent) text() []byte {
	b := fmt.Appendf(nil, "%s%s\ndevice %s\nreadings %d\n", erasureHeader, in.step, in.Device, in.Readings)
	return fmt.Appendf(b, "end %08x\n", checksum(b))
}

// parseIntent parses a text that intent.text has returned. Any other text is damaged.
func parseIntent(text []byte) (*intent, error) {
	in := &intent{}
	var step, name string
	var sum uint32
	_, err := fmt.Sscanf(string(text), erasureHeader+"%s\ndevice %s\nreadings %d\nend %x\n", &step, &name, &in.Readings, &sum)
	if err == nil {
		in.step = erasureStep(step)
		in.Device, err = vitals.ParseName(name)
	}
	if err != nil || in.step != stepRemove && in.step != stepPurge || !bytes.Equal(in.text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, erasureFile)
	}
	return in, nil
}

// readIntent returns the intent of a directory, or nil if it has none.
func (d *directory) readIntent() (*intent, error) {
	text, err := readSmallFile(d.fs, d.fs.PathJoin(d.path, erasureFile), maxErasureBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseIntent(text)
}

func (d *directory) writeIntent(in *intent) error {
	if err := replaceFile(d.fs, d.path, erasureFile, in.text()); err != nil {
		return fmt.Errorf("write %s: %w", erasureFile, err)
	}
	return nil
}

// removeIntent ends an erasure, durably.
func (d *directory) removeIntent() error {
	if err := d.fs.Remove(d.fs.PathJoin(d.path, erasureFile)); err != nil {
		return err
	}
	return syncDir(d.fs, d.path)
}
