package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/pprof/profile"
)

// summaryFile is the file of a folder that is written last: a folder without it is
// incomplete.
const summaryFile = "summary.json"

// file is one file of a folder: a raw profile, or the counters as they were scraped.
type file struct {
	name    string
	profile **profile.Profile
	text    []byte
}

// files are the files of a folder besides the summary. go tool pprof opens each
// profile.
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

// PrepareDir makes the folder dir where it is missing. It returns an error if it
// holds a profile already: one is never written over another.
func PrepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("profile: make folder: %w", err)
	}
	for _, f := range append(new(Capture).files(), file{name: summaryFile}) {
		switch _, err := os.Lstat(filepath.Join(dir, f.name)); {
		case err == nil:
			return fmt.Errorf("profile: %s holds a profile already (%s)", dir, f.name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("profile: look into folder: %w", err)
		}
	}
	return nil
}

// Save writes what was captured, and the summary of its report, into dir, which
// PrepareDir has made.
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

// writeFile makes a new file. A file that is there already is an error.
func writeFile(path string, to func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return to(f)
}

// Open reads a folder that Save has written. Profiles that were not captured stay
// nil.
func Open(dir string) (*Capture, error) {
	text, err := readFile(filepath.Join(dir, summaryFile), maxMetricsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("profile: %s holds no complete profile: %w", dir, err)
	}
	var s Report
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Format != summaryFormat {
		err = fmt.Errorf("it has format %d, this program reads format %d", s.Format, summaryFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("profile: load %s: %w", filepath.Join(dir, summaryFile), err)
	}
	c := &Capture{Target: s.Target, Start: s.Start, Window: time.Duration(s.Window * float64(time.Second)), Before: s.Before, After: s.After}
	for _, f := range c.files() {
		if f.profile == nil {
			continue
		}
		raw, err := readFile(filepath.Join(dir, f.name), maxRawBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			*f.profile, err = parseProfile(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("profile: load %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return c, nil
}

// readFile reads a whole file of at most maxBytes.
func readFile(path string, maxBytes int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, maxBytes)
}
