package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/vitals"
)

// The file ERASING describes an unfinished erasure, which the next start must finish:
//
//	pulsegate erasure 1 purge
//	device ppg-000123
//	readings 86400
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything before it. If only an assignment is erased, with
// what the device measured during it, the version is 2, and there are further lines after that
// of the device:
//
//	subject P-17
//	from 1800000000000
//	to 1800086400000
//
// The steps are
//
//	remove   the readings must be removed, including all acknowledged so far
//	purge    the readings were removed; their bytes may still be in files
const (
	erasureHeader    = "pulsegate erasure 1 "
	assignmentHeader = "pulsegate erasure 2 "
	maxErasureBytes  = 1024
)

type erasureStep string

const (
	stepRemove erasureStep = "remove"
	stepPurge  erasureStep = "purge"
)

// An intent is the content of ERASING.
type intent struct {
	step erasureStep
	storage.Erasure
}

func (in *intent) text() []byte {
	header, assigned := erasureHeader, ""
	if in.ofAssignment() {
		header = assignmentHeader
		assigned = fmt.Sprintf("subject %s\nfrom %d\nto %d\n", in.Subject, in.FromUnixMs, in.ToUnixMs)
	}
	b := fmt.Appendf(nil, "%s%s\ndevice %s\n%sreadings %d\n", header, in.step, in.Device, assigned, in.Readings)
	return fmt.Appendf(b, "end %08x\n", datadir.Checksum(b))
}

// ofAssignment reports whether not the whole device is erased.
func (in *intent) ofAssignment() bool { return in.Subject != "" }

// parseIntent parses a text that intent.text has returned. Any other text is damaged.
func parseIntent(text []byte) (*intent, error) {
	in := &intent{}
	var step, name, subject string
	var sum uint32
	var err error
	if bytes.HasPrefix(text, []byte(assignmentHeader)) {
		_, err = fmt.Sscanf(string(text), assignmentHeader+"%s\ndevice %s\nsubject %s\nfrom %d\nto %d\nreadings %d\nend %x\n",
			&step, &name, &subject, &in.FromUnixMs, &in.ToUnixMs, &in.Readings, &sum)
		in.Subject = storage.Subject(subject)
	} else {
		_, err = fmt.Sscanf(string(text), erasureHeader+"%s\ndevice %s\nreadings %d\nend %x\n", &step, &name, &in.Readings, &sum)
	}
	if err == nil {
		in.step = erasureStep(step)
		in.Device, err = vitals.ParseName(name)
	}
	if err == nil && in.ofAssignment() {
		a := storage.Assignment{Device: in.Device, Subject: in.Subject, FromUnixMs: in.FromUnixMs, ToUnixMs: in.ToUnixMs}
		err = a.Validate()
	}
	if err != nil || in.step != stepRemove && in.step != stepPurge || !bytes.Equal(in.text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, datadir.ErasureFile)
	}
	return in, nil
}

// readIntent returns the intent of a directory, or nil if it has none.
func readIntent(d *datadir.Dir) (*intent, error) {
	text, err := datadir.ReadSmall(d.FS, d.File(datadir.ErasureFile), maxErasureBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseIntent(text)
}

// write stores the intent in a directory, durably.
func (in *intent) write(fsys vfs.FS, dir string) error {
	if err := datadir.Replace(fsys, dir, datadir.ErasureFile, in.text()); err != nil {
		return fmt.Errorf("write %s: %w", datadir.ErasureFile, err)
	}
	return nil
}

// removeIntent ends an erasure, durably.
func removeIntent(d *datadir.Dir) error {
	if err := d.FS.Remove(d.File(datadir.ErasureFile)); err != nil {
		return err
	}
	return datadir.SyncDir(d.FS, d.Path)
}
