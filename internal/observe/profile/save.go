package profile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"
)

// PrepareDir creates the directory dir if necessary. It returns an error if dir is not empty, because nothing is
// overwritten.
func PrepareDir(dir string) error {
	err := os.MkdirAll(dir, 0o777)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return fmt.Errorf("prepare directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty (%s)", dir, entries[0].Name())
	}
	return nil
}

// Save writes the capture and the summary of its report to dir, which PrepareDir has
// prepared. go tool pprof can open each profile. The summary comes last: a directory without it is incomplete.
func (c *Capture) Save(dir string, r *Report) (errs error) {
	write := func(name string, to func(io.Writer) error) {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			err = errors.Join(to(file), file.Close())
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("save %s: %w", name, err))
		}
	}
	for name, p := range map[string]*profile.Profile{"cpu": c.CPU, "allocs": c.Allocs, "heap": c.Heap,
		"goroutine": c.Goroutine, "mutex": c.Mutex, "block": c.Block} {
		if p != nil {
			write(name+".pb.gz", p.Write)
		}
	}
	for name, text := range map[string][]byte{"metrics-before.txt": c.beforeText, "metrics-after.txt": c.afterText} {
		if text != nil {
			write(name, func(w io.Writer) error { _, err := w.Write(text); return err })
		}
	}
	if errs == nil {
		write("summary.json", r.WriteJSON)
	}
	return errs
}
