package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/schollz/progressbar/v3"
)

// storeSource names the store that an administrator works on.
type storeSource struct {
	Target string `env:"-" default:"http://127.0.0.1:6060" help:"Admin listener of the running server."`
	Data   string `env:"-" placeholder:"DIR" help:"Data directory of a stopped server, in place of --target."`

	clientFlags `embed:""`
}

type backupCommand struct {
	Dir   string `arg:"" type:"path" help:"Directory to write the backup to. It must be missing or empty."`
	Audit string `placeholder:"FILE" help:"Audit log in which to record a backup of a data directory. A server records its own."`

	storeSource `embed:""`
}

func (c *backupCommand) Run(ctx context.Context, std stdio) error {
	// The server need not be asked for what has no place.
	if err := pebblestore.CheckPlace(c.Dir, nil); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	receive := func(archive io.Reader, fileBytes int64) error {
		copied, checked := newByteProgress(std.err, "copy"), newByteProgress(std.err, "verify")
		copied.ChangeMax64(fileBytes)
		counted := progressbar.NewReader(archive, copied.ProgressBar)
		report, err := pebblestore.ReceiveBackup(ctx, &counted, c.Dir, pebblestore.CopyOptions{Bytes: fileBytes, Progress: checked.set})
		copied.finish()
		checked.finish()
		if err != nil {
			return err
		}
		return printCopy(std.out, c.Dir, report)
	}
	if c.Data != "" {
		return c.stopped(ctx, receive)
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Backup(ctx, receive)
}

// stopped backs up a data directory.
func (c *backupCommand) stopped(ctx context.Context, receive func(archive io.Reader, fileBytes int64) error) error {
	if err := record(ctx, c.Audit, audit.Record{Event: audit.BackedUp, Actor: audit.Actor()}); err != nil {
		return err
	}
	b, err := pebblestore.BackupStopped(ctx, c.Data, nil)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := b.WriteTo(w)
		sent <- w.CloseWithError(err)
	}()
	err = receive(r, b.Bytes())
	r.Close() // ends the sender; returns nil
	<-sent
	return errors.Join(err, b.Close())
}

// printCopy prints what a copy holds, once it was verified.
func printCopy(out io.Writer, dir string, report pebblestore.Report) error {
	_, err := fmt.Fprintf(out, "ok dir=%s devices=%d readings=%d tables=%d table_bytes=%d\n",
		dir, report.Devices, report.Readings, report.Tables, report.TableBytes)
	return err
}

type restoreCommand struct {
	Backup string `arg:"" type:"path" help:"Directory of a backup, or of a store that was stopped in good order."`
	Data   string `env:"-" required:"" placeholder:"DIR" type:"path" help:"Data directory to make. It must be missing or empty."`
}

func (c *restoreCommand) Run(ctx context.Context, std stdio) error {
	bar := newByteProgress(std.err, "restore")
	report, err := pebblestore.Restore(ctx, c.Backup, c.Data, pebblestore.CopyOptions{Progress: bar.set})
	bar.finish()
	if err != nil {
		return err
	}
	return printCopy(std.out, c.Data, report)
}

// record writes to the audit log at path, if there is to be one.
func record(ctx context.Context, path string, r audit.Record) error {
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // for other processes that write to it
	defer cancel()
	log, err := audit.Open(ctx, path, audit.Options{})
	if err != nil {
		return err
	}
	return errors.Join(log.Append(ctx, r), log.Close())
}
