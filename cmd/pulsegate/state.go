package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// A stateFile is the path of a file with the cursor of what follows.
type stateFile string

// maxStateBytes bounds the size of a state.
const maxStateBytes = 4096

// goneState follows the cursor after the receiver has answered 410.
const goneState = "gone\n"

// errGoneState means that the receiver has answered 410.
var errGoneState = errors.New("the receiver has answered 410 Gone, so nothing is sent to it; --again sends again")

// lock waits for other commands with the same state, and says so.
func (f *stateFile) lock(ctx context.Context, stderr io.Writer) (unlock func(), err error) {
	// All names of a file must have one lock, and a link must stay one when the file is replaced.
	if path, err := filepath.EvalSymlinks(string(*f)); err == nil {
		*f = stateFile(path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--state: %w", err)
	}
	path := string(*f) + ".lock"
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if unlock, err = sharedfile.Lock(soon, path); errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(stderr, "Another command uses %s. This one waits until it ends.\n", *f)
		unlock, err = sharedfile.Lock(ctx, path)
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	return unlock, nil
}

// load reads the cursor in the state, "" if there is none. The error is errGoneState beside a cursor.
func (f stateFile) load() (cursor string, err error) {
	text, err := sharedfile.Read(string(f), maxStateBytes)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("--state: %w", err)
	}
	cursor, more, ok := strings.Cut(string(text), "\n")
	_, err = base64.RawURLEncoding.DecodeString(cursor) // it is sent to the server
	if err != nil || !ok || more != "" && more != goneState {
		return "", settings.Usagef("--state: %s is not a state of this command", f)
	}
	if more == goneState {
		return cursor, errGoneState
	}
	return cursor, nil
}

// save replaces the state.
func (f stateFile) save(cursor string) error { return f.replace(cursor + "\n") }

func (f stateFile) replace(text string) error {
	if err := sharedfile.Replace(string(f), []byte(text)); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	return nil
}
