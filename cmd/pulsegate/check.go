package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

type checkCommand struct {
	Dir  string `arg:"" help:"Data directory of a stopped server."`
	JSON bool   `help:"Print the report as one JSON object."`
}

// A checkReport is what check prints as JSON.
type checkReport struct {
	OK          bool             `json:"ok"`
	Devices     int64            `json:"devices"`
	Readings    int64            `json:"readings"`
	Assignments int64            `json:"assignments"` // of devices to subjects
	Values      map[string]int64 `json:"values"`      // by sign
	Oldest      string           `json:"oldest,omitzero"`
	Newest      string           `json:"newest,omitzero"`
	Tables      int              `json:"tables"`
	TableBytes  int64            `json:"table_bytes"`
	LogBytes    int64            `json:"log_bytes"`
	Format      int              `json:"format"`
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
	r := checkReport{
		OK: true, Devices: report.Devices, Readings: report.Readings, Assignments: report.Assignments,
		Values: map[string]int64{},
		Tables: report.Tables, TableBytes: report.TableBytes, LogBytes: report.LogBytes, Format: report.Format,
	}
	values := int64(0)
	var lines []byte
	for s, d := range report.Signs.All() {
		if n := report.Values[s]; n > 0 || d.Own() {
			r.Values[d.Field] = n
			values += n
			lines = fmt.Appendf(lines, "%s=%d\n", d.Field, n)
		}
	}
	if report.Readings > 0 {
		r.Oldest, r.Newest = formatTime(report.OldestUnixMs), formatTime(report.NewestUnixMs)
	}
	if c.JSON {
		return printJSON(std.out, r)
	}
	fmt.Fprintf(std.out,
		"devices=%d readings=%d values=%d assignments=%d tables=%d table_bytes=%d log_bytes=%d format=%d\n",
		r.Devices, r.Readings, values, r.Assignments, r.Tables, r.TableBytes, r.LogBytes, r.Format)
	fmt.Fprintf(std.out, "%s", lines)
	if report.Readings > 0 {
		fmt.Fprintf(std.out, "oldest=%s newest=%s\n", r.Oldest, r.Newest)
	}
	_, err = fmt.Fprintln(std.out, "ok")
	return err
}

func formatTime(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339Nano) }
