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

type changesCommand struct {
	Follow  bool        `help:"Wait for what changes next, and do not end."`
	State   string      `type:"path" placeholder:"FILE" help:"File in which to keep how far the output is, which only you can read. The next call continues there. Default: write everything."`
	Prefix  vitals.Name `placeholder:"TEXT" help:"Only devices whose names begin with it. Default: all."`
	Signs   string      `placeholder:"LIST" help:"Only these fields of signs, with commas between them. Default: all."`
	Subject string      `placeholder:"ID" help:"Only what this subject wore. Default: all."`

	readerFlags `embed:""`
}

// Run writes changes as NDJSON. What was written is noted in the state after it was written, so it may be written
// twice, and nothing is left out.
func (c *changesCommand) Run(ctx context.Context, std stdio) error {
	sel := transfer.ChangeSelection{Prefix: c.Prefix.String(), Signs: c.Signs, Subject: c.Subject, Follow: c.Follow}
	if c.State != "" {
		unlock, err := sharedfile.Lock(ctx, c.State+".lock")
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		defer unlock()
		if sel.Cursor, err = c.load(); err != nil {
			return err
		}
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	continued := sel.Cursor != ""
	use := func(changes []jsontext.Value, next string) error {
		if err := writeChanges(std.out, changes); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
		continued = true
		return c.save(std.out, next)
	}
	err = transfer.Changes(ctx, client, sel, use)
	if errors.Is(err, transfer.ErrCursorUnknown) && continued {
		fmt.Fprintln(std.err, "The server does not know what follows the state: everything is written again, from begin to complete.")
		sel.Cursor = ""
		err = transfer.Changes(ctx, client, sel, use)
	}
	return err
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

// maxStateBytes bounds the size of the state.
const maxStateBytes = 4096

// load reads the cursor in the state, if there is one.
func (c *changesCommand) load() (cursor string, err error) {
	text, err := sharedfile.Read(c.State, maxStateBytes)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("--state: %w", err)
	}
	cursor, ok := strings.CutSuffix(string(text), "\n")
	if _, err := base64.RawURLEncoding.DecodeString(cursor); err != nil || !ok { // it is sent to the server
		return "", settings.Usagef("--state: %s is not a state of this command", c.State)
	}
	return cursor, nil
}

// save replaces the state, after what was written to a file is on stable storage.
func (c *changesCommand) save(out io.Writer, cursor string) error {
	if c.State == "" {
		return nil
	}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			if err := file.Sync(); err != nil {
				return fmt.Errorf("write changes: %w", err)
			}
		}
	}
	if err := sharedfile.Replace(c.State, []byte(cursor+"\n")); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	return nil
}
