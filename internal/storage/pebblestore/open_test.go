package pebblestore_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestLocked opens a store that is open in another process, or in this one, also by other spellings of its path.
func TestLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	wantLocked := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrLocked) {
			t.Errorf("%s: got %v, want ErrLocked", what, err)
			return
		}
		for _, want := range []string{dir, "another process"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the message %q does not contain %q", what, err, want)
			}
		}
	}
	attempts := func(who string) {
		t.Helper()
		_, err := pebblestore.Open(dir, pebblestore.Options{})
		wantLocked(who+": Open", err)
		_, err = pebblestore.Open(dir, pebblestore.Options{ReadOnly: true})
		wantLocked(who+": Open read-only", err)
		_, err = pebblestore.Check(context.Background(), dir, pebblestore.CheckOptions{})
		wantLocked(who+": Check", err)
	}
	end := holder(t, dir)
	attempts("another process")
	try(t, end())

	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		t.Fatalf("after the other process has ended: %v", err)
	}
	attempts("this process")
	mustAppend(t, s, entry("d", 1, 1))
	defer mustClose(t, s)
	wd, err := os.Getwd()
	try(t, err)
	relative, err := filepath.Rel(wd, dir)
	try(t, err)
	for _, path := range []string{dir + "/", dir + "/../data", relative} {
		if _, err := pebblestore.Open(path, pebblestore.Options{}); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("Open(%s) returns %v, want ErrLocked", path, err)
		}
	}
}

// TestForeignDirectory opens directories with other files, which must not be changed.
func TestForeignDirectory(t *testing.T) {
	const ours = "pulsegate store, version 1\nThe files beside this one belong together. Please change none of " +
		"them by hand.\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"other files", map[string]string{"thesis.txt": "..."}, "thesis.txt"},
		{"a Pebble store of another program", map[string]string{"000002.log": "", "MANIFEST-000001": "",
			"marker.manifest.000001.MANIFEST-000001": "", "marker.format-version.000011.024": ""}, "000002.log"},
		{"a store of a format that no release wrote",
			map[string]string{"PULSEGATE": strings.Replace(ours, "version 1", "format 4", 1), "000004.sst": ""},
			"unreleased format 4: export its readings with the program that wrote it"},
		{"a store of a later version", map[string]string{"PULSEGATE": strings.Replace(ours, "1", "2", 1), "x.sst": ""},
			"version 2, and this Pulsegate reads version 1: use a later"},
		{"a store without a version", map[string]string{"PULSEGATE": "hello\n"}, "has no version"},
		{"a store with a newer Pebble format", map[string]string{"PULSEGATE": ours, "marker.format-version.000013.025": ""},
			"later version"},
		{"an interrupted creation and a file", map[string]string{"PULSEGATE.new": "", "thesis.txt": ""}, "thesis.txt"},
		{"an interrupted creation and a table", map[string]string{"PULSEGATE.new": "", "000004.sst": ""}, "000004.sst"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			try(t, fs.MkdirAll(dataDir, 0o755))
			for name, text := range tt.files {
				writeFile(t, fs, dataDir+"/"+name, text)
			}
			before := files(t, fs)
			_, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
			if !errors.Is(err, storage.ErrFormat) || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), dataDir) {
				t.Errorf("Open returns %v, want ErrFormat with %q and the directory", err, tt.want)
			}
			if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); !errors.Is(err,
				storage.ErrFormat) {
				t.Errorf("Check returns %v, want ErrFormat", err)
			}
			if after := files(t, fs); !maps.Equal(before, after) {
				t.Errorf("Open left %v, want %v", slices.Collect(maps.Keys(after)), slices.Collect(maps.Keys(before)))
			}
		})
	}
}

// files returns the files of the data directory except the lock, by name.
func files(t testing.TB, fs vfs.FS) map[string]string {
	t.Helper()
	names, err := fs.List(dataDir)
	try(t, err)
	all := map[string]string{}
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		text, err := readFile(fs, dataDir+"/"+name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed by an open store since it was listed
		}
		try(t, err)
		all[name] = text
	}
	return all
}

// TestNewDirectory creates stores in missing and empty directories.
func TestNewDirectory(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"missing":        func(string) error { return nil },
		"empty":          func(dir string) error { return os.MkdirAll(dir, 0o755) },
		"a mounted ext4": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755) },
		"interrupted immediately": func(dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "PULSEGATE.new"), nil, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "deep", "down")
			try(t, prepare(dir))
			for range 2 {
				s, err := pebblestore.Open(dir, pebblestore.Options{})
				try(t, err)
				mustAppend(t, s, entry("d", 1, 1))
				mustClose(t, s)
			}
		})
	}
}

// TestNotADirectory opens a file, and a missing directory read-only.
func TestNotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	try(t, os.WriteFile(file, nil, 0o644))
	_, err := pebblestore.Open(file, pebblestore.Options{})
	if err == nil || errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), file) {
		t.Errorf("Open of a file returns %v, want an error that names it", err)
	}
	_, err = pebblestore.Open(filepath.Join(t.TempDir(), "none"), pebblestore.Options{ReadOnly: true})
	if !errors.Is(err, storage.ErrFormat) {
		t.Errorf("read-only Open of a missing directory returns %v, want ErrFormat", err)
	}
	if _, err := os.Stat(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read-only Open has created the directory: %v", err)
	}
}

// shifted adds ms to the times of readings.
func shifted(group []*storage.Entry, ms int64) []*storage.Entry {
	for _, e := range group {
		e.Reading.TimeUnixMs += ms
	}
	return group
}

// TestReadOnly reads a store that has crashed. Nothing may change.
func TestReadOnly(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: disk})
	mustAppend(t, s, manyEntries(300)...)
	want := mustDump(t, s)
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)

	before := files(t, crashed)
	r := mustOpen(t, pebblestore.Options{FS: crashed, ReadOnly: true})
	if got := mustDump(t, r); got != want {
		t.Errorf("a read-only store holds\n%s\nwant\n%s", got, want)
	}
	err := r.Append([]*storage.Entry{entry("d", 1, 1)})
	if !errors.Is(err, pebblestore.ErrReadOnly) || !errors.Is(err, storage.ErrNotWritten) {
		t.Errorf("Append returns %v, want ErrReadOnly and ErrNotWritten", err)
	}
	mustClose(t, r)
	if !maps.Equal(before, files(t, crashed)) {
		t.Error("reading has changed the directory")
	}
}

// TestOpenBesideUnfinishedCopy opens a store where a restore was interrupted. A new store
// there would accept readings, and the restore could not be repeated.
func TestOpenBesideUnfinishedCopy(t *testing.T) {
	fs := vfs.NewMem()
	try(t, fs.MkdirAll(dataDir+".partial", 0o700))
	_, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
	if !errors.Is(err, storage.ErrFormat) || !strings.Contains(err.Error(), dataDir+".partial") {
		t.Errorf("got %v, want ErrFormat with the copy", err)
	}
	if _, err := fs.Stat(dataDir); err == nil {
		t.Error("the directory was created")
	}
	try(t, fs.RemoveAll(dataDir+".partial"))
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	if err := fs.MkdirAll(dataDir+".partial", 0o700); err != nil { // an existing store can be opened
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
}
