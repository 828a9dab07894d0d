package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// storeSource names the store that an administrator works on.
type storeSource struct {
	Target string `env:"-" default:"http://127.0.0.1:6060" help:"Admin listener of the running server."`
	Data   string `env:"-" placeholder:"DIR" help:"Data directory of a stopped server, in place of --target."`

	clientFlags `embed:""`
}

// client returns a client of the admin listener.
func (c *storeSource) client(stderr io.Writer) (*transfer.Client, error) {
	cred, err := c.load(c.Target, stderr)
	if err != nil {
		return nil, err
	}
	client, err := transfer.NewClient(c.Target, transfer.Credentials{Token: cred.token, TLS: cred.tls})
	if err != nil {
		return nil, usageError{err.Error()}
	}
	return client, nil
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
	if c.Data != "" {
		return c.stopped(ctx, std)
	}
	client, err := c.client(std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Backup(ctx, func(archive io.Reader, fileBytes int64) error {
		return receiveBackup(ctx, std, archive, c.Dir, fileBytes)
	})
}

// stopped backs up a data directory.
func (c *backupCommand) stopped(ctx context.Context, std stdio) error {
	if err := recordUpkeep(ctx, c.Audit, audit.Record{Event: audit.BackedUp, Actor: audit.Actor()}); err != nil {
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
	err = receiveBackup(ctx, std, r, c.Dir, b.Bytes())
	r.Close() // ends the sender; returns nil
	<-sent
	return errors.Join(err, b.Close())
}

// receiveBackup writes an archive to dir and says what it holds.
func receiveBackup(ctx context.Context, std stdio, archive io.Reader, dir string, fileBytes int64) error {
	copied := newProgress(std.err, "copy", fileBytes)
	checked := newProgress(std.err, "verify", -1)
	report, err := pebblestore.ReceiveBackup(ctx, &countingReader{r: archive, bar: copied, of: fileBytes}, dir,
		pebblestore.CopyOptions{Bytes: fileBytes, Progress: checked.set})
	copied.finish()
	checked.finish()
	if err != nil {
		return err
	}
	return printCopy(std.out, dir, report)
}

// printCopy says what a copy holds, once it was verified.
func printCopy(out io.Writer, dir string, report pebblestore.Report) error {
	_, err := fmt.Fprintf(out, "ok dir=%s devices=%d readings=%d tables=%d table_bytes=%d\n",
		dir, report.Devices, report.Readings, report.Tables, report.TableBytes)
	return err
}

// A countingReader shows how much was read.
type countingReader struct {
	r    io.Reader
	bar  *progress
	n    int64
	of   int64
	seen time.Time
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if now := time.Now(); now.Sub(c.seen) > 100*time.Millisecond {
		c.seen = now
		c.bar.set(min(c.n, c.of), c.of)
	}
	return n, err
}

type restoreCommand struct {
	Backup string `arg:"" type:"path" help:"Directory of a backup, or of a store that was stopped in good order."`
	Data   string `env:"-" required:"" placeholder:"DIR" type:"path" help:"Data directory to make. It must be missing or empty."`
}

func (c *restoreCommand) Run(ctx context.Context, std stdio) error {
	bar := newProgress(std.err, "restore", -1)
	report, err := pebblestore.Restore(ctx, c.Backup, c.Data, pebblestore.CopyOptions{Progress: bar.set})
	bar.finish()
	if err != nil {
		return err
	}
	return printCopy(std.out, c.Data, report)
}

// recordUpkeep writes one record to an audit log; an empty path means none.
func recordUpkeep(ctx context.Context, path string, r audit.Record) (err error) {
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	log, err := audit.Open(ctx, path, audit.Options{})
	if err != nil {
		return err
	}
	return errors.Join(log.Append(ctx, r), log.Close())
}

// isThere refuses a directory that is not there: to open it would make a new store.
func isThere(dir string) error {
	_, err := os.Stat(dir)
	return err
}
