package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

type checkCommand struct {
	Dir string `arg:"" help:"Data directory of a stopped server."`
}

func (c *checkCommand) Run(ctx context.Context, std stdio) error {
	bar := newByteProgress(std.err, "check")
	report, err := pebblestore.Check(ctx, c.Dir, pebblestore.CheckOptions{
		Progress: func(tableBytes, ofTableBytes, _ int64) { bar.set(tableBytes, ofTableBytes) },
	})
	bar.finish()
	if err != nil {
		return err
	}
	values := int64(0)
	for _, n := range report.Values {
		values += n
	}
	fmt.Fprintf(std.out, "devices=%d readings=%d values=%d tables=%d table_bytes=%d log_bytes=%d format=%d\n",
		report.Devices, report.Readings, values, report.Tables, report.TableBytes, report.LogBytes, report.Format)
	for s := range vitals.Sign(vitals.NumSigns) {
		fmt.Fprintf(std.out, "%s=%d\n", s, report.Values[s])
	}
	if report.Readings > 0 {
		fmt.Fprintf(std.out, "oldest=%s newest=%s\n", formatTime(report.OldestUnixMs), formatTime(report.NewestUnixMs))
	}
	_, err = fmt.Fprintln(std.out, "ok")
	return err
}

func formatTime(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339Nano) }
