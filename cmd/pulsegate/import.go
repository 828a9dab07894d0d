package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type importCommand struct {
	File    string            `arg:"" help:"CSV or NDJSON file; the ending .csv, .ndjson or .jsonl tells which."`
	Target  string            `default:"http://127.0.0.1:8080" help:"Address of the server."`
	Device  vitals.Name       `help:"Device of rows that name none."`
	Map     recording.Mapping `placeholder:"FIELD=COLUMN,..." help:"Columns of a CSV file, such as heart_rate_bpm=HR,spo2_pct=SpO2. Signs that are not named are left out. Default: columns named as the JSON fields."`
	ShiftTo *moment           `placeholder:"TIME" help:"Move all times so that the newest is this one: 'now', or RFC 3339 with zone. For recordings whose dates were moved by de-identification."`
	Batch   int               `default:"500" help:"Readings in one request."`
	Format  string            `enum:"auto,csv,ndjson" default:"auto" help:"Format of the file: auto, csv or ndjson."`
	JSON    bool              `help:"Print the summary as one JSON object."`
	Quiet   bool              `short:"q" help:"Do not list refused rows."`

	clientFlags `embed:""`
}

func (c *importCommand) Run(ctx context.Context, std stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer file.Close()
	opt := recording.Options{Mapping: c.Map, Device: c.Device}
	var reader recording.Reader
	if c.ShiftTo == nil {
		reader, err = recording.New(file, c.Format, opt)
	} else {
		reader, err = recording.NewShifted(file, c.Format, opt, int64(*c.ShiftTo))
	}
	if err != nil {
		return err
	}
	if left := recording.LeftOut(reader); len(left) > 0 && !c.Quiet {
		fmt.Fprintf(std.err, "columns left out: %s\n", strings.Join(left, ", "))
	}
	sum, err := c.upload(ctx, std, client, file, reader)
	if err := c.print(std.out, sum); err != nil {
		return err
	}
	if err == nil && sum.Rejected > 0 && sum.Stored+sum.Duplicate == 0 {
		err = errors.New("no reading was accepted")
	}
	return err
}

// check completes the flags, and refuses those that contradict each other.
func (c *importCommand) check() error {
	if c.Format == "auto" {
		c.Format = recording.FormatOf(c.File)
	}
	switch {
	case c.Batch < 1 || c.Batch > 100_000:
		return settings.Usagef("--batch is not from 1 to 100000")
	case c.Format == "":
		return settings.Usagef("the file's name does not tell its format; add --format csv or --format ndjson")
	case c.Format == recording.NDJSON && c.Map != (recording.Mapping{}):
		return settings.Usagef("--map names the columns of a CSV file; this is NDJSON")
	}
	return nil
}

// upload sends the readings, and shows how far it is and what was refused.
func (c *importCommand) upload(ctx context.Context, std stdio, client *transfer.Client, file *os.File, reader recording.Reader) (transfer.Summary, error) {
	size := int64(-1)
	if info, err := file.Stat(); err == nil {
		size = info.Size()
	}
	bar := newByteProgress(std.err, "import")
	refused := refusals{out: std.err, quiet: c.Quiet}
	sum, err := transfer.Upload(ctx, client, reader, transfer.UploadOptions{
		Batch: c.Batch,
		OnProgress: func(transfer.Summary) {
			if at, err := file.Seek(0, io.SeekCurrent); err == nil {
				bar.set(at, size)
			}
		},
		OnRefused: refused.add,
	})
	bar.finish()
	refused.end()
	return sum, err
}

func (c *importCommand) print(out io.Writer, sum transfer.Summary) error {
	if c.JSON {
		return printJSON(out, sum)
	}
	_, err := fmt.Fprintf(out, "sent=%d stored=%d duplicate=%d rejected=%d failed=%d values=%d rows=%d no_sign=%d zeros_left_out=%d\n",
		sum.Sent, sum.Stored, sum.Duplicate, sum.Rejected, sum.Failed, sum.Values, sum.Rows, sum.NoSign, sum.Zeros)
	return err
}

// printJSON prints v as one line of JSON.
func printJSON(out io.Writer, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("format report: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// refusals lists refused rows, the first ones each by itself.
type refusals struct {
	out   io.Writer
	quiet bool
	total int
	ahead bool // some lay ahead of the server's clock
	old   bool // some lay before the oldest time that the server accepts
}

// shownRefusals is how many refused rows are listed one by one.
const shownRefusals = 20

func (p *refusals) add(r transfer.Refusal) {
	p.total++
	p.ahead = p.ahead || r.Field == "time" && strings.Contains(r.Reason, "ahead of the server's clock")
	p.old = p.old || r.Field == "time" && strings.Contains(r.Reason, "the oldest time that this server accepts")
	if !p.quiet && p.total <= shownRefusals {
		fmt.Fprintf(p.out, "line %d refused: %s\n", r.Line, r.Text())
	}
}

// end prints how many were not listed, and what to do about the commonest cause.
func (p *refusals) end() {
	if more := p.total - shownRefusals; more > 0 && !p.quiet {
		fmt.Fprintf(p.out, "and %d more\n", more)
	}
	if p.ahead {
		fmt.Fprintln(p.out, "The times lie ahead of the server's clock. If de-identification has moved the recording's dates, add '--shift-to now'.")
	}
	if p.old {
		fmt.Fprintln(p.out, "The times lie before what the server accepts. Integers are milliseconds: multiply seconds by 1000. For an old recording, add '--shift-to now'.")
	}
}
