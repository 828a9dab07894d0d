package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// TestAnchoredFiles creates a file by path after the store's directory was moved and
// replaced by another one, as a background flush may between two checks.
func TestAnchoredFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	try := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	d, err := datadir.Open(vfs.Default, dir, false, false)
	try(err)
	defer d.Close() // its error does not matter here
	try(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700))
	if err := d.Intact(); err == nil {
		t.Error("Intact returns nil after the directory was replaced")
	}
	fs := d.FS
	f, err := fs.Create(filepath.Join(dir, "000099.sst"), vfs.WriteCategoryUnspecified)
	try(err, f.Close())
	if _, err := os.Stat(filepath.Join(dir+".old", "000099.sst")); err != nil {
		t.Errorf("the file is not in the store's directory: %v", err)
	}
	try(fs.Rename(filepath.Join(dir, "000099.sst"), filepath.Join(dir, "000098.sst")), fs.Remove(filepath.Join(dir, "000098.sst")))
	if got, err := os.ReadDir(dir); len(got) > 0 || err != nil {
		t.Errorf("the other directory holds %v, %v", got, err)
	}
}
