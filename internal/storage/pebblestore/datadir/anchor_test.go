package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// TestAnchoredFiles accesses files by path after the store's directory was moved and
// replaced by another one, as a background flush may between two checks. The mutant is skip-anchor.
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
	try(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "PULSEGATE"), []byte("another store"), 0o600))
	if err := d.Intact(); err == nil {
		t.Error("Intact returns nil after the directory was replaced")
	}
	for what, err := range map[string]error{
		"Create":        second(d.FS.Create(filepath.Join(dir, "000099.sst"), vfs.WriteCategoryUnspecified)),
		"Open":          second(d.FS.Open(filepath.Join(dir, "PULSEGATE"))),
		"OpenDir":       second(d.FS.OpenDir(dir)),
		"Rename":        d.FS.Rename(filepath.Join(dir, "PULSEGATE"), filepath.Join(dir, "000098.sst")),
		"Link":          d.FS.Link(filepath.Join(dir, "PULSEGATE"), filepath.Join(dir, "000098.sst")),
		"Remove":        d.FS.Remove(filepath.Join(dir, "PULSEGATE")),
		"RemoveAll":     d.FS.RemoveAll(filepath.Join(dir, "PULSEGATE")),
		"MkdirAll":      d.FS.MkdirAll(filepath.Join(dir, "checkpoint"), 0o700),
		"OpenReadWrite": second(d.FS.OpenReadWrite(filepath.Join(dir, "PULSEGATE"), vfs.WriteCategoryUnspecified)),
		"ReuseForWrite": second(d.FS.ReuseForWrite(filepath.Join(dir, "PULSEGATE"), filepath.Join(dir, "000098.log"), vfs.WriteCategoryUnspecified)),
	} {
		if err == nil || !strings.Contains(err.Error(), "changed while the store was open") {
			t.Errorf("%s in another directory returns %v", what, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "PULSEGATE")); string(text) != "another store" || err != nil {
		t.Errorf("the other directory has %q, %v", text, err)
	}
	if got, err := os.ReadDir(dir); len(got) != 1 || err != nil {
		t.Errorf("the other directory holds %v, %v", got, err)
	}
}

func second(_ vfs.File, err error) error { return err }
