package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

var try = polltest.Try

// TestAnchoredFiles accesses files by path after the store's directory was moved and replaced by another one, as
// a flush, a query or an erasure may before that is noticed. The mutant is skip-anchor.
func TestAnchoredFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	d, err := datadir.Open(vfs.Default, dir, false, false)
	try(t, err)
	defer d.Close() // its error does not matter here
	f := d.Watch(d.FS, nil)
	table := filepath.Join(dir, "000002.sst")
	try(t, os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(table, []byte("another store"), 0o600))
	for what, err := range map[string]error{
		"Create":        second(f.Create(filepath.Join(dir, "000003.sst"), vfs.WriteCategoryUnspecified)),
		"Rename":        f.Rename(table, filepath.Join(dir, "000003.sst")),
		"Remove":        f.Remove(table),
		"Open":          second(f.Open(table)),
		"Replace":       datadir.Replace(d.FS, d.Path, "ERASING", nil),
		"ReuseForWrite": second(f.ReuseForWrite(table, filepath.Join(dir, "000003.log"), vfs.WriteCategoryUnspecified)),
	} {
		if err == nil || !strings.Contains(err.Error(), "changed while the store was open") {
			t.Errorf("%s in another directory returns %v", what, err)
		}
	}
	if text, err := os.ReadFile(table); string(text) != "another store" || err != nil {
		t.Errorf("the other directory has %q, %v", text, err)
	}
	if got, err := os.ReadDir(dir); len(got) != 1 || err != nil {
		t.Errorf("the other directory holds %v, %v", got, err)
	}
}

func second(_ vfs.File, err error) error { return err }
