package purge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrHeld means that a table has a key that was removed, or its deletion.
var ErrHeld = errors.New("tables still hold it")

// JournalMayHold reports whether a file other than a table may hold the name of a device,
// and not as a part of a longer name. In logs and manifests a name may cross the end of a
// block; the header of a chunk is between the parts.
//
// Groups do not have names in full, so those in logs are decoded. Of a group whose beginning was
// overwritten, when the file of its log was reused, only names in full are found.
func JournalMayHold(fsys vfs.FS, path string, device *vitals.Name) (bool, error) {
	if info, err := fsys.Stat(path); err != nil || info.IsDir() {
		return false, err
	}
	f, err := fsys.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return false, err
	}
	defer f.Close()
	around := device.Len() + 2
	var before []byte // the end of the previous block
	var batches wal.BatchReader
	log := strings.HasSuffix(path, wal.LogSuffix)
	for block := make([]byte, wal.BlockBytes); ; {
		n, err := io.ReadFull(f, block)
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !over {
			return false, err
		}
		if holdsName(block[:n], device, over) || log && batches.Block(block[:n], func(b []byte) bool { return batchNames(b, device) }) {
			return true, nil
		}
		for _, header := range []int{0, 7, 11, 19} { // none, and those of a manifest and of logs
			from := min(header, n)
			if holdsName(append(bytes.Clone(before), block[from:min(from+around, n)]...), device, over) {
				return true, nil
			}
		}
		if over {
			return false, nil
		}
		before = append(before[:0], block[n-around:]...)
	}
}

// holdsName reports whether b holds the name of a device, followed by a byte that cannot be
// part of a name, or by the end of the file if end is true. In a log, the key of a record
// is preceded by its length and followed by that of the value, which may look like a part of
// the name.
func holdsName(b []byte, device *vitals.Name, end bool) bool {
	name := device.AppendTo(nil)
	recordKey := append([]byte{byte(1 + len(name))}, layout.AppendRecordKey(nil, device)...)
	if bytes.Contains(b, recordKey) {
		return true
	}
	for {
		i := bytes.Index(b, name)
		if i < 0 {
			return false
		}
		after := b[i+len(name):]
		if len(after) == 0 {
			return end
		}
		if _, err := vitals.ParseName(after[:1]); err != nil {
			return true
		}
		b = b[i+1:]
	}
}

// batchNames reports whether a group in a batch names a device, or cannot be decoded.
func batchNames(batch []byte, device *vitals.Name) bool {
	var group layout.Group
	for r := batchrepr.Read(batch); ; {
		kind, key, value, ok, err := r.Next()
		if !ok {
			return err != nil
		}
		if kind == pebble.InternalKeyKindSet && key[0] == layout.GroupPrefix && group.Names(value, device) {
			return true
		}
	}
}

// TableLacks returns an error that wraps ErrHeld if a table has a key or a range
// deletion in a range, or only the latter if the range is live. If device is not nil,
// only groups that name it count.
func TableLacks(fsys vfs.FS, path string, o sstable.ReaderOptions, in Range, device *vitals.Name) (err error) {
	r, err := datadir.OpenTable(context.Background(), fsys, path, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	deletions, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil {
		return err
	}
	if deletions != nil {
		defer deletions.Close()
		span, err := deletions.First()
		for ; span != nil && err == nil; span, err = deletions.Next() {
			if device != nil && in.Groups {
				continue // it names no device
			}
			if bytes.Compare(span.Start, in.After) <= 0 && bytes.Compare(span.End, in.Before) > 0 {
				return fmt.Errorf("%w: a deletion", ErrHeld)
			}
		}
		if err != nil {
			return err
		}
	}
	if in.Live {
		return nil
	}
	var group layout.Group
	keys, err := r.NewIter(sstable.NoTransforms, in.Before, append(bytes.Clone(in.After), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	for kv := keys.First(); kv != nil && err == nil; kv = keys.Next() {
		if device != nil && in.Groups {
			value, _, valueErr := kv.Value(nil)
			if valueErr == nil && !group.Names(value, device) {
				continue
			}
			err = valueErr
		}
		err = errors.Join(fmt.Errorf("%w: a key", ErrHeld), err)
	}
	return errors.Join(err, keys.Close())
}
