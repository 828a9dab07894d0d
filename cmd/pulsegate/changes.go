package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
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
		unlock, err := c.State.lock(ctx, std.err)
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
func readChanges(
	ctx context.Context, client *transfer.Client, sel transfer.ChangeSelection, stderr io.Writer, done string,
	use func(*transfer.ChangesPage) error,
) error {
	for continued := sel.Cursor != ""; ; continued, sel.Cursor = false, "" {
		err := transfer.Changes(ctx, client, sel, func(page *transfer.ChangesPage) error {
			continued = true
			return use(page)
		})
		if !continued || !errors.Is(err, transfer.ErrCursorUnknown) {
			return err
		}
		fmt.Fprintf(stderr,
			"The server does not know what follows the state: everything is %s again, from begin to complete.\n", done)
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
