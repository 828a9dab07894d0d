package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// An output is a file that a command writes after long work. It is opened before the work, so
// that a wrong path does not waste it.
type output struct {
	file    *os.File
	created bool // it did not exist before
}

// replaceOutput opens the file at path for writing, and creates it if it does not exist. A file
// that exists keeps its contents until [output.write].
func replaceOutput(path string) (*output, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		return &output{file, true}, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if file, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	return &output{file: file}, nil
}

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
	return &output{file, true}, nil
}

// write replaces the contents of the file by what fill writes, and closes it. After an error
// a file that was created is removed.
func (o *output) write(fill func(io.Writer) error) error {
	var err error
	if !o.created && !isDevice(o.file) {
		err = o.file.Truncate(0)
	}
	if err == nil {
		err = fill(o.file)
	}
	if err == nil && o.created {
		err = o.file.Sync()
	}
	if err = errors.Join(err, o.file.Close()); err != nil && o.created {
		err = errors.Join(err, os.Remove(o.file.Name()))
	}
	return err
}

// abandon closes the file, and removes it if it was created. After write it does nothing.
func (o *output) abandon() {
	if o == nil || o.file.Close() != nil { // write has closed it
		return
	}
	if o.created {
		_ = os.Remove(o.file.Name()) // an empty file is harmless
	}
}

// isDevice reports whether a file has no length to truncate, such as /dev/null or a pipe.
func isDevice(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && !info.Mode().IsRegular()
}
