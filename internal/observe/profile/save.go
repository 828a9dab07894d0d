package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"
)

// summaryFile is written last: a directory without it is incomplete.
const summaryFile = "summary.json"

// A file is one file of a saved capture: a raw profile, or the scraped counters.
type file struct {
	name    string
	profile **profile.Profile
	text    []byte
}

// files returns the files of a saved capture except the summary. go tool pprof can open
// each profile.
func (c *Capture) files() []file {
	return []file{
		{"cpu.pb.gz", &c.CPU, nil},
		{"allocs.pb.gz", &c.Allocs, nil},
		{"heap.pb.gz", &c.Heap, nil},
		{"goroutine.pb.gz", &c.Goroutine, nil},
		{"mutex.pb.gz", &c.Mutex, nil},
		{"block.pb.gz", &c.Block, nil},
		{"metrics-before.txt", nil, c.beforeText},
		{"metrics-after.txt", nil, c.afterText},
	}
}

// PrepareDir creates the directory dir if necessary. It returns an error if dir already
// has a profile, which is never overwritten.
func PrepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("profile: create directory: %w", err)
	}
	for _, f := range append(new(Capture).files(), file{name: summaryFile}) {
		switch _, err := os.Lstat(filepath.Join(dir, f.name)); {
		case err == nil:
			return fmt.Errorf("profile: %s already has a profile (%s)", dir, f.name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("profile: check directory: %w", err)
		}
	}
	return nil
}

// Save writes the capture and the summary of its report to dir, which PrepareDir has
// prepared.
func (c *Capture) Save(dir string, r *Report) error {
	var errs []error
	write := func(name string, to func(io.Writer) error) {
		if err := writeFile(filepath.Join(dir, name), to); err != nil {
			errs = append(errs, fmt.Errorf("profile: save %s: %w", name, err))
		}
	}
	for _, f := range c.files() {
		switch {
		case f.profile != nil && *f.profile != nil:
			write(f.name, (*f.profile).Write)
		case f.text != nil:
			write(f.name, func(w io.Writer) error { _, err := w.Write(f.text); return err })
		}
	}
	if len(errs) == 0 {
		write(summaryFile, r.WriteJSON)
	}
	return errors.Join(errs...)
}

// writeFile creates a file. It returns an error if the file exists.
func writeFile(path string, to func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return to(f)
}
