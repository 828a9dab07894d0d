package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNoBlock means that a page has no valid pair of markers for a block.
var ErrNoBlock = errors.New("report: page has no such block")

// ReplaceBlock returns page with the text between <!-- name:begin --> and <!-- name:end
// --> replaced. It keeps the markers.
func ReplaceBlock(page []byte, name, text string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+":begin -->"), []byte("<!-- "+name+":end -->")
	if bytes.Count(page, begin) != 1 || bytes.Count(page, end) != 1 {
		return nil, fmt.Errorf("%w: %s", ErrNoBlock, name)
	}
	before, rest, _ := bytes.Cut(page, begin)
	_, after, ok := bytes.Cut(rest, end)
	if !ok {
		return nil, fmt.Errorf("%w: %s ends before it begins", ErrNoBlock, name)
	}
	return fmt.Appendf(nil, "%s%s\n\n%s\n\n%s%s", before, begin, bytes.TrimSpace([]byte(text)), end, after), nil
}

// UpdatePage replaces a block of the file at path.
func UpdatePage(path, name, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	if page, err = ReplaceBlock(page, name, text); err != nil {
		return err
	}
	return WriteFile(path, page)
}

// WriteFile atomically replaces the file at path, so that an interrupted run keeps the
// old one.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write page: %w", err)
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
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
