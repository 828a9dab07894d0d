package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/vitals"
)

type importCommand struct {
	File    string `arg:"" help:"CSV or NDJSON file; the ending .csv, .ndjson or .jsonl tells which."`
	Target  string `default:"http://127.0.0.1:8080" help:"Address of the server."`
	Device  string `help:"Device of rows that name none."`
	Map     string `placeholder:"FIELD=COLUMN,..." help:"Columns of a CSV file, such as heart_rate_bpm=HR,spo2_pct=SpO2. Signs that are not named are left out. Default: columns named as the JSON fields."`
	ShiftTo string `placeholder:"TIME" help:"Move all times so that the newest is this one: 'now', or RFC 3339 with zone. For recordings whose dates were moved by de-identification."`
	Batch   int    `default:"500" help:"Readings in one request."`
	Format  string `enum:"auto,csv,ndjson" default:"auto" help:"Format of the file: auto, csv or ndjson."`
	JSON    bool   `help:"Print the summary as one JSON object."`
	Quiet   bool   `short:"q" help:"Do not list refused rows."`

	clientFlags `embed:""`
}

// shownRefusals is how many refused rows are listed one by one.
const shownRefusals = 20

func (c *importCommand) Run(ctx context.Context, std stdio) error {
	opt, err := c.options()
	if err != nil {
		return err
	}
	cred, err := c.load(c.Target, std.err)
	if err != nil {
		return err
	}
	client, err := transfer.NewClient(c.Target, transfer.Credentials{Token: cred.token, TLS: cred.tls})
	if err != nil {
		return usageError{err.Error()}
	}
	defer client.Close()
	if c.ShiftTo != "" {
		if opt.ShiftMs, err = c.shiftMs(opt); err != nil {
			return err
		}
	}
	file, reader, err := c.open(opt)
	if err != nil {
		return err
	}
	defer file.Close()

	if left := recording.LeftOut(reader); len(left) > 0 && !c.Quiet {
		fmt.Fprintf(std.err, "columns left out: %s\n", strings.Join(left, ", "))
	}
	size := int64(-1)
	if info, err := file.Stat(); err == nil {
		size = info.Size()
	}
	bar := newProgress(std.err, "import", size)
	report := refusalReport{out: std.err, quiet: c.Quiet}
	sum, err := transfer.Upload(ctx, client, reader, transfer.UploadOptions{
		Batch: c.Batch,
		Progress: func(transfer.Summary) {
			if at, err := file.Seek(0, io.SeekCurrent); err == nil {
				bar.set(at, size)
			}
		},
		Refused: report.add,
	})
	bar.finish()
	report.end()
	if err := c.printSummary(std.out, sum); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case sum.Rejected > 0 && sum.Stored+sum.Duplicate == 0:
		return errors.New("no reading was accepted")
	}
	return nil
}

// options turns the flags into those of a recording.
func (c *importCommand) options() (recording.Options, error) {
	opt := recording.Options{}
	if c.Batch < 1 || c.Batch > 100_000 {
		return opt, usageError{"--batch is not from 1 to 100000"}
	}
	var err error
	if opt.Mapping, err = recording.ParseMapping(c.Map); err != nil {
		return opt, usageError{err.Error()}
	}
	if c.Device != "" {
		if opt.Device, err = vitals.ParseName(c.Device); err != nil {
			return opt, usageError{"--device: " + err.Error()}
		}
	}
	return opt, nil
}

// open opens the file and reads as much of it as tells its form.
func (c *importCommand) open(opt recording.Options) (*os.File, recording.Reader, error) {
	format := c.Format
	if format == "auto" {
		switch name := strings.ToLower(c.File); {
		case strings.HasSuffix(name, ".csv"):
			format = "csv"
		case strings.HasSuffix(name, ".ndjson"), strings.HasSuffix(name, ".jsonl"):
			format = "ndjson"
		default:
			return nil, nil, usageError{"the file's name does not tell its format; add --format csv or --format ndjson"}
		}
	}
	if format == "ndjson" && c.Map != "" {
		return nil, nil, usageError{"--map names the columns of a CSV file; this is NDJSON"}
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, nil, err
	}
	if format == "ndjson" {
		return file, recording.NewNDJSON(file, opt), nil
	}
	reader, err := recording.NewCSV(file, opt)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, reader, nil
}

// shiftMs returns what to add to the times of the file so that the newest becomes
// the one that was asked for.
func (c *importCommand) shiftMs(opt recording.Options) (int64, error) {
	target := time.Now().UnixMilli()
	if c.ShiftTo != "now" {
		var err error
		if target, err = vitals.ParseTime(c.ShiftTo); err != nil {
			return 0, usageError{"--shift-to is neither 'now' nor RFC 3339 with zone"}
		}
	}
	file, reader, err := c.open(opt)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	newest, err := recording.Newest(reader)
	if err != nil {
		return 0, fmt.Errorf("find the newest time: %w", err)
	}
	return target - newest, nil
}

func (c *importCommand) printSummary(out io.Writer, sum transfer.Summary) error {
	if c.JSON {
		text, err := json.Marshal(sum)
		if err != nil {
			return fmt.Errorf("format summary: %w", err)
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	_, err := fmt.Fprintf(out, "sent=%d stored=%d duplicate=%d rejected=%d failed=%d values=%d rows=%d no_sign=%d zeros_left_out=%d\n",
		sum.Sent, sum.Stored, sum.Duplicate, sum.Rejected, sum.Failed, sum.Values, sum.Rows, sum.NoSign, sum.Zeros)
	return err
}

// aheadReason is part of what the server says of times ahead of its clock.
const aheadReason = "ahead of the server's clock"

// A refusalReport lists refused rows, the first ones each by itself.
type refusalReport struct {
	out    io.Writer
	quiet  bool
	total  int
	future bool // some were refused for lying ahead of the server's clock
}

func (p *refusalReport) add(r transfer.Refusal) {
	p.total++
	p.future = p.future || r.Field == "time" && strings.Contains(r.Reason, aheadReason)
	if p.quiet || p.total > shownRefusals {
		return
	}
	if r.Field == "" {
		fmt.Fprintf(p.out, "line %d refused: %s\n", r.Line, r.Reason)
	} else {
		fmt.Fprintf(p.out, "line %d refused: %s: %s\n", r.Line, r.Field, r.Reason)
	}
}

// end tells how many were not listed, and what to do about the commonest cause.
func (p *refusalReport) end() {
	if more := p.total - shownRefusals; more > 0 && !p.quiet {
		fmt.Fprintf(p.out, "and %d more\n", more)
	}
	if p.future {
		fmt.Fprintln(p.out, "The times lie ahead of the server's clock. If de-identification has moved the recording's dates, add '--shift-to now'.")
	}
}
