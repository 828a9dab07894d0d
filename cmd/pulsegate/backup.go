package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/schollz/progressbar/v3"
)

// storeSource are the flags that name the store of a command.
type storeSource struct {
	Data string `env:"-" placeholder:"DIR" help:"Data directory of a stopped server, instead of --target."`

	adminFlags `embed:""`
}

type backupCommand struct {
	Dir   string `arg:"" type:"path" help:"Directory for the backup. It must not exist, or be empty."`
	Audit string `placeholder:"FILE" help:"Audit log in which to record a backup of a data directory. A server records backups in its own."`
	JSON  bool   `help:"Print the result as one JSON object."`

	storeSource `embed:""`
}

func (c *backupCommand) Run(ctx context.Context, std stdio) error {
	// A wrong directory is reported before the request is sent.
	if err := backup.CheckDestination(c.Dir, nil); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	receive := func(archive io.Reader, fileBytes int64) error {
		copied, checked := newByteProgress(std.err, "copy"), newByteProgress(std.err, "verify")
		copied.ChangeMax64(fileBytes)
		counted := progressbar.NewReader(archive, copied.ProgressBar)
		report, err := pebblestore.ReceiveBackup(ctx, &counted, c.Dir,
			backup.Options{Bytes: fileBytes, Progress: checked.set})
		copied.finish()
		checked.finish()
		if err != nil {
			return err
		}
		return printCopy(std.out, c.JSON, c.Dir, report)
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
	b, err := backup.Stopped(ctx, c.Data, nil)
	if err != nil {
		return err
	}
	return errors.Join(b.Send(receive), b.Close())
}

// A copyReport is what backup and restore print as JSON.
type copyReport struct {
	OK         bool   `json:"ok"`
	Dir        string `json:"dir"`
	Devices    int64  `json:"devices"`
	Readings   int64  `json:"readings"`
	Tables     int    `json:"tables"`
	TableBytes int64  `json:"table_bytes"`
}

// printCopy prints the contents of a verified copy.
func printCopy(out io.Writer, asJSON bool, dir string, report pebblestore.Report) error {
	if asJSON {
		return printJSON(out, copyReport{true, dir, report.Devices, report.Readings, report.Tables, report.TableBytes})
	}
	_, err := fmt.Fprintf(out, "ok dir=%s devices=%d readings=%d tables=%d table_bytes=%d\n",
		dir, report.Devices, report.Readings, report.Tables, report.TableBytes)
	return err
}

type restoreCommand struct {
	Backup string `arg:"" type:"path" help:"Directory of a backup, or of a store that was closed cleanly."`
	Data   string `env:"-" required:"" placeholder:"DIR" type:"path" help:"Data directory to create. It must not exist, or be empty."`
	JSON   bool   `help:"Print the result as one JSON object."`
}

func (c *restoreCommand) Run(ctx context.Context, std stdio) error {
	bar := newByteProgress(std.err, "restore")
	report, err := pebblestore.Restore(ctx, c.Backup, c.Data, backup.Options{Progress: bar.set})
	bar.finish()
	if err != nil {
		return err
	}
	return printCopy(std.out, c.JSON, c.Data, report)
}

// record appends a record to the audit log at path, unless path is empty.
func record(ctx context.Context, path string, r audit.Record) error {
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // other processes may hold its lock
	defer cancel()
	log, err := audit.Open(ctx, path, audit.Options{})
	if err != nil {
		return err
	}
	return errors.Join(log.Append(ctx, r), log.Close())
}
