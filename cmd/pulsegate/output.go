package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// An output is a new file that a command writes after long work. It is created before the work, so
// that a wrong path does not waste it.
type output struct{ file *os.File }

// createOutput creates the file at path, which only its owner can read. It does not overwrite:
// flag is the flag that names the file, for the error.
func createOutput(flag, path string) (*output, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, settings.Usagef("%s: %s exists, and is not overwritten", flag, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &output{file}, nil
}

// write writes the file with fill, and closes it. After an error the file is removed.
func (o *output) write(fill func(io.Writer) error) error {
	err := fill(o.file)
	if err == nil {
		err = o.file.Sync()
	}
	if err = errors.Join(err, o.file.Close()); err != nil {
		err = errors.Join(err, os.Remove(o.file.Name()))
	}
	return err
}

// abandon closes and removes the file. After write it does nothing.
func (o *output) abandon() {
	if o == nil || o.file.Close() != nil { // write has closed it
		return
	}
	_ = os.Remove(o.file.Name()) // an empty file is harmless
}
