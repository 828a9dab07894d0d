package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile atomically replaces the file at path, so that an interrupted run keeps the
// old one.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	defer os.Remove(f.Name()) // no effect after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
