package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// changeFlags select changes.
type changeFlags struct {
	Prefix  vitals.Name `placeholder:"TEXT" help:"Only devices whose names begin with it. Default: all."`
	Signs   string      `placeholder:"LIST" help:"Only these fields of signs, with commas between them. Default: all."`
	Subject string      `placeholder:"ID" help:"Only what this subject wore. Default: all."`
}

// selection returns what the flags select.
func (f *changeFlags) selection() transfer.ChangeSelection {
	return transfer.ChangeSelection{Prefix: f.Prefix.String(), Signs: f.Signs, Subject: f.Subject}
}

type changesCommand struct {
	Follow bool      `help:"Wait for what changes next, and do not end."`
	State  stateFile `type:"path" placeholder:"FILE" help:"File in which to keep how far the output is, which only you can read. The next call continues there. Default: write everything."`

	changeFlags `embed:""`
	readerFlags `embed:""`
}

// Run writes changes as NDJSON. What was written is noted in the state after it was written, so it may be written
// twice, and nothing is left out.
func (c *changesCommand) Run(ctx context.Context, std stdio) error {
	sel := c.selection()
	sel.Follow = c.Follow
	if c.State != "" {
		unlock, err := c.State.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		if sel.Cursor, err = c.State.load(); err != nil {
			return err
		}
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	return readChanges(ctx, client, sel, std.err, "written", func(page *transfer.ChangesPage) error {
		if err := writeChanges(std.out, page.Changes); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
		if c.State == "" {
			return nil
		}
		if err := syncOutput(std.out); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
		return c.State.save(page.Next)
	})
}

// readChanges calls use with changes. If the server does not know what follows a cursor, it begins again, and says that
// everything is done again.
func readChanges(ctx context.Context, client *transfer.Client, sel transfer.ChangeSelection, stderr io.Writer, done string, use func(*transfer.ChangesPage) error) error {
	for continued := sel.Cursor != ""; ; continued, sel.Cursor = false, "" {
		err := transfer.Changes(ctx, client, sel, func(page *transfer.ChangesPage) error {
			continued = true
			return use(page)
		})
		if !continued || !errors.Is(err, transfer.ErrCursorUnknown) {
			return err
		}
		fmt.Fprintf(stderr, "The server does not know what follows the state: everything is %s again, from begin to complete.\n", done)
	}
}

// writeChanges writes changes, one on each line, at once: a process that is killed leaves no part of a line in a file.
func writeChanges(out io.Writer, changes []jsontext.Value) error {
	var lines []byte
	for _, x := range changes {
		if err := x.Compact(); err != nil {
			return err
		}
		lines = append(append(lines, x...), '\n')
	}
	_, err := out.Write(lines)
	return err
}

// syncOutput syncs what was written to a file.
func syncOutput(out io.Writer) error {
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return file.Sync()
		}
	}
	return nil
}

// A stateFile is the path of a file with the cursor of what follows.
type stateFile string

// maxStateBytes bounds the size of a state.
const maxStateBytes = 4096

// goneState follows the cursor after the receiver has answered 410.
const goneState = "gone\n"

// errGoneState means that the receiver has answered 410.
var errGoneState = errors.New("the receiver has answered 410 Gone, so nothing is sent to it; --again sends again")

// lock waits for other commands with the same state.
func (f stateFile) lock(ctx context.Context) (unlock func(), err error) {
	if unlock, err = sharedfile.Lock(ctx, string(f)+".lock"); err != nil {
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
	if _, err := base64.RawURLEncoding.DecodeString(cursor); err != nil || !ok || more != "" && more != goneState { // it is sent to the server
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
