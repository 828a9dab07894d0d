package purge

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
// what the device measured during it, the version is 2, and there are further lines after the
// name of the device:
//
//	subject P-17
//	from 1800000000000
//	to 1800086400000
//
// If values are erased, the version is 3, and the further lines are
//
//	from 1800000000000
//	to 1800086400000
//	signs 0000000c
//	gateway ward-3 true
//
// without the last of these if the values of all gateways are. It ends with whether values of readings that others
// have completed are erased, too.
const (
	deviceHeader     = "pulsegate erasure 1 "
	assignmentHeader = "pulsegate erasure 2 "
	valuesHeader     = "pulsegate erasure 3 "
	maxIntentBytes   = 1024
)

// The steps of an erasure.
const (
	stepRemove = "remove" // the readings must be removed, including all acknowledged so far
	stepPurge  = "purge"  // the readings were removed; their bytes may still be in files
)

// An Intent is the content of ERASING.
type Intent struct {
	step string
	storage.Erasure
}

func (in *Intent) text() []byte {
	header, what := deviceHeader, ""
	switch {
	case in.ofAssignment():
		header = assignmentHeader
		what = fmt.Sprintf("subject %s\nfrom %d\nto %d\n", in.Subject, in.FromUnixMs, in.ToUnixMs)
	case in.OfValues():
		header = valuesHeader
		what = fmt.Sprintf("from %d\nto %d\nsigns %08x\n", in.FromUnixMs, in.ToUnixMs, in.Signs)
		if !in.Gateway.IsZero() {
			what += fmt.Sprintf("gateway %s %t\n", in.Gateway, in.Shared)
		}
	}
	b := fmt.Appendf(nil, "%s%s\ndevice %s\n%sreadings %d\n", header, in.step, in.Device, what, in.Readings)
	return fmt.Appendf(b, "end %08x\n", datadir.Checksum(b))
}

// ofAssignment reports whether only an assignment is erased.
func (in *Intent) ofAssignment() bool { return in.Subject != "" }

// parse parses a text that Intent.text has returned. Any other text is damaged.
func parse(text []byte) (*Intent, error) {
	in := &Intent{}
	var name, subject, gateway string
	var sum uint32
	var err error
	switch {
	case bytes.HasPrefix(text, []byte(valuesHeader)) && bytes.Contains(text, []byte("\ngateway ")):
		_, err = fmt.Sscanf(string(text),
			valuesHeader+"%s\ndevice %s\nfrom %d\nto %d\nsigns %x\ngateway %s %t\nreadings %d\nend %x\n",
			&in.step, &name, &in.FromUnixMs, &in.ToUnixMs, &in.Signs, &gateway, &in.Shared, &in.Readings, &sum)
		if err == nil {
			in.Gateway, err = vitals.ParseName(gateway)
		}
	case bytes.HasPrefix(text, []byte(valuesHeader)):
		_, err = fmt.Sscanf(string(text), valuesHeader+"%s\ndevice %s\nfrom %d\nto %d\nsigns %x\nreadings %d\nend %x\n",
			&in.step, &name, &in.FromUnixMs, &in.ToUnixMs, &in.Signs, &in.Readings, &sum)
	case bytes.HasPrefix(text, []byte(assignmentHeader)):
		_, err = fmt.Sscanf(string(text), assignmentHeader+"%s\ndevice %s\nsubject %s\nfrom %d\nto %d\nreadings %d\nend %x\n",
			&in.step, &name, &subject, &in.FromUnixMs, &in.ToUnixMs, &in.Readings, &sum)
		in.Subject = storage.Subject(subject)
	default:
		_, err = fmt.Sscanf(string(text), deviceHeader+"%s\ndevice %s\nreadings %d\nend %x\n", &in.step, &name,
			&in.Readings, &sum)
	}
	if err == nil {
		in.Device, err = vitals.ParseName(name)
	}
	if err == nil && in.ofAssignment() {
		err = in.assignment().Validate()
	}
	if err == nil && in.OfValues() {
		err = in.Validate()
	}
	if err != nil || in.step != stepRemove && in.step != stepPurge || !bytes.Equal(in.text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, datadir.ErasureFile)
	}
	return in, nil
}

// assignment returns the assignment that is erased.
func (in *Intent) assignment() *storage.Assignment {
	return &storage.Assignment{Device: in.Device, Subject: in.Subject, FromUnixMs: in.FromUnixMs, ToUnixMs: in.ToUnixMs}
}

// ReadIntent returns the intent of a directory, or nil if it has none.
func ReadIntent(d *datadir.Dir) (*Intent, error) {
	text, err := datadir.ReadSmall(d.FS, d.File(datadir.ErasureFile), maxIntentBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// Write stores the intent in a directory, durably.
func (in *Intent) Write(fsys vfs.FS, dir string) error {
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
