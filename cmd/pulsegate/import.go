package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/signsfile"
	"github.com/pulsegate/pulsegate/vitals"
)

type importCommand struct {
	File    string      `arg:"" help:"CSV, NDJSON, JSON or XML file, which gzip or zstd may have compressed, or a zip with one, or - for standard input."`
	Target  string      `placeholder:"URL" default:"http://127.0.0.1:8080" help:"URL of the server."`
	Device  vitals.Name `placeholder:"NAME" help:"Device of rows that do not name one."`
	Map     string      `placeholder:"FIELD=COLUMN,..." help:"Columns of a CSV file, such as heart_rate_bpm=HR,spo2_pct=SpO2. Signs without a column are left out. Default: columns with the names of the JSON fields."`
	ShiftTo *moment     `placeholder:"TIME" help:"Move all times so that the newest is this one: 'now', or RFC 3339 with a zone. For recordings with the shifted dates of de-identification. Refused if the server would accept the own time of a row. Reads the file twice, so standard input must not be a pipe."`
	Yes     bool        `action:"" help:"With --shift-to, move also times that the server would accept as they are."`
	Batch   int         `default:"500" help:"Readings per request."`
	Format  string      `enum:"auto,csv,ndjson,json,xml" default:"auto" help:"Format of the file. auto uses the ending .csv, .ndjson, .jsonl, .json or .xml, the mapping, or the first byte of standard input."`
	JSON    bool        `help:"Print the summary as one JSON object."`
	Quiet   bool        `short:"q" help:"Do not list rejected rows."`
	Rejects string      `action:"" type:"path" placeholder:"FILE" help:"New file for the rejected rows, which only you can read: the row with its line, field and reason, in the format of the import, to be corrected and imported again."`

	AllowRejected bool `help:"Exit with 0 although rows were rejected."`
	DryRun        bool `action:"" help:"Send nothing: print the first readings as they would be stored, and what would be rejected."`

	shapeFlags `embed:""`

	signsFlag   `embed:""`
	clientFlags `embed:""`

	signs   *vitals.Signs
	mapping recording.Mapping // the parsed Map
	clock   *shape.Clock      // of the parsed Zone, without a mapping of the file

	delimiter byte // of the cells of a file that a mapping describes
}

// A signsFlag names a file of signs of a user's own.
type signsFlag struct {
	Signs string `type:"path" placeholder:"FILE" help:"File of signs of your own, the same as that of serve --signs."`
}

// table returns the built-in signs and those of the file.
func (f *signsFlag) table() (*vitals.Signs, error) {
	signs, _, err := signsfile.Table(f.Signs)
	return signs, settings.Usage(err)
}

// stdinName is the name of the file that means standard input.
const stdinName = "-"

func (c *importCommand) Run(ctx context.Context, std stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	file, closeFile, err := c.open(ctx, std.in)
	if err != nil {
		return err
	}
	defer closeFile()
	reader, closeReader, err := c.reader(ctx, client, file, std.err)
	if err != nil {
		return err
	}
	defer closeReader()
	if left := recording.LeftOut(reader); len(left) > 0 && !c.Quiet {
		fmt.Fprintf(std.err, "columns left out: %s\n", strings.Join(left, ", "))
	}
	rejected := rejections{out: std.err, quiet: c.Quiet, format: c.Format, delimiter: c.delimiter, shaped: c.shaped()}
	var rejects *output
	if c.Rejects != "" {
		if rejects, err = createOutput("--rejects", c.Rejects); err != nil {
			return err
		}
		defer rejects.abandon()
		rejected.file = bufio.NewWriter(rejects.file)
		if c.Format == recording.CSV {
			fmt.Fprintf(rejected.file, "%s%s\n", strings.ReplaceAll(recording.RejectedColumns, ",", string(c.delimiter)),
				reader.Text())
		}
	}
	send := c.upload
	if c.DryRun {
		send = c.preview
	}
	sum, err := send(ctx, std, client, file, reader, &rejected)
	if rejects != nil && sum.Rejected > 0 {
		if failed := rejects.write(func(io.Writer) error { return rejected.file.Flush() }); failed != nil {
			err = errors.Join(err, fmt.Errorf("--rejects: %w", failed))
		} else {
			fmt.Fprintf(std.err, "rejected rows: %s\n", c.Rejects)
		}
	}
	if err := c.print(std.out, sum); err != nil {
		return err
	}
	if err == nil && sum.Rejected > 0 && !c.AllowRejected {
		err = fmt.Errorf("%d of %d rows were %w. With --allow-rejected the exit code is 0", sum.Rejected,
			sum.Rows, errRejected)
	}
	return err
}

// errRejected means that the server has rejected readings of a file, and stored the others.
var errRejected = errors.New("rejected")

// check completes the flags and rejects those that contradict each other.
func (c *importCommand) check() (err error) {
	if c.signs, err = c.table(); err != nil {
		return err
	}
	if c.mapping, err = recording.ParseMapping(c.signs, c.Map); err != nil {
		return settings.Usage(fmt.Errorf("--map: %w", err))
	}
	if c.Format == "auto" && c.File != stdinName {
		c.Format = recording.FormatOf(c.File)
	}
	c.delimiter = ','
	switch {
	case c.shaped() && (c.Map != "" || c.ShiftTo != nil):
		return settings.Usagef("--mapping and --as cannot be combined with --map and --shift-to")
	case (c.Format == recording.JSON || c.Format == recording.XML) && !c.shaped():
		return settings.Usagef(
			"a document of JSON or XML needs --mapping or --as; a file of readings, one in a line, needs --format ndjson")
	case c.Batch < 1 || c.Batch > 100_000:
		return settings.Usagef("--batch is not from 1 to 100000")
	case c.Format == "" && !c.shaped():
		return settings.Usagef(
			"the name of the file does not end in .csv, .ndjson or .jsonl; add --format csv or --format ndjson")
	}
	if c.Zone != "" && !c.shaped() {
		if c.clock, err = shape.NewInstants(c.Zone); err != nil {
			return settings.Usage(fmt.Errorf("--%w", err))
		}
	}
	return nil
}

// open opens the file or standard input.
func (c *importCommand) open(ctx context.Context, stdin io.Reader) (file io.Reader, closeFile func() error, err error) {
	file, closeFile = stdin, func() error { return nil }
	if c.File != stdinName {
		opened, err := openAny(ctx, c.File)
		if err != nil {
			return nil, nil, err
		}
		file, closeFile = opened, opened.Close
	}
	if c.ShiftTo != nil {
		seeker, ok := file.(io.Seeker)
		if ok {
			_, err = seeker.Seek(0, io.SeekCurrent)
		}
		if !ok || err != nil { // a pipe
			return nil, nil,
				errors.Join(settings.Usagef("--shift-to reads the file twice, and standard input or a FIFO cannot be read again; "+
					"name a regular file"), closeFile())
		}
	}
	file = interruptible(ctx, file)
	if c.File == stdinName && c.Format == "auto" && c.ShiftTo != nil {
		return nil, nil, settings.Usagef("add --format csv or --format ndjson: --shift-to reads the file twice")
	}
	return file, closeFile, nil
}

// reader returns the readings of the file. closeReader must be called after the last one.
func (c *importCommand) reader(ctx context.Context, client *transfer.Client, file io.Reader,
	errOut io.Writer) (reader recording.Reader, closeReader func(), err error) {
	if c.ShiftTo != nil {
		reader, err = c.readings(ctx, client, file)
		return reader, func() {}, err
	}
	if c.shaped() {
		return c.openShaped(ctx, file, errOut)
	}
	content, closeReader, err := recording.Decompress(file)
	if err != nil {
		return nil, nil, err
	}
	if c.Format == "auto" { // standard input
		if c.Format, content, err = recording.DetectFormat(content); err != nil {
			err = fmt.Errorf("read standard input: %w", err)
		}
	}
	if err == nil {
		reader, err = c.readings(ctx, client, content)
	}
	if err != nil {
		closeReader()
	}
	return reader, closeReader, err
}

// readings returns the readings of a file that no mapping describes.
func (c *importCommand) readings(ctx context.Context, client *transfer.Client, file io.Reader) (reader recording.Reader,
	err error) {
	switch {
	case c.Format == recording.NDJSON && c.Map != "":
		return nil, settings.Usagef("--map requires a CSV file; this one is NDJSON")
	case c.Format == recording.NDJSON && c.Zone != "":
		return nil,
			settings.Usagef("--zone requires a CSV file, or --mapping or --as; a reading in NDJSON has the offset in its time")
	}
	opt := recording.Options{Signs: c.signs, Mapping: c.mapping, Device: c.Device, Zone: c.clock, Texts: c.Rejects != ""}
	if c.ShiftTo == nil {
		reader, err = recording.New(file, c.Format, opt)
	} else {
		times := ownTimes{limits: acceptedTimes(ctx, client), nowUnixMs: time.Now().UnixMilli()}
		reader, err = recording.NewShifted(file.(io.ReadSeeker), c.Format, opt, int64(*c.ShiftTo), times.add)
		if err == nil && times.accepted > 0 && times.newestUnixMs != int64(*c.ShiftTo) && !c.Yes {
			err = settings.Usagef(
				"--shift-to would move all %d rows with a reading, and the server would accept %d of them at their own times. "+
					"Correct or remove the rows with wrong times instead, or add --yes to move all", times.rows, times.accepted)
		}
	}
	if errors.Is(err, recording.ErrColumn) || errors.Is(err, recording.ErrNoColumn) {
		err = fmt.Errorf("%w. Name the columns of the fields with --map, such as --map time=Time,heart_rate_bpm=HR", err)
		if c.Device.IsZero() {
			err = fmt.Errorf("%w; without a column for the device, name it with --device", err)
		}
	}
	return reader, err
}

// acceptedTimes returns which times the server accepts. Without the right to ask, these are the default ones, and any
// since 1970.
func acceptedTimes(ctx context.Context, client *transfer.Client) vitals.Limits {
	limits, err := transfer.TimeLimits(ctx, client)
	if err != nil {
		limits = vitals.Limits{MaxAhead: vitals.NewSigns().DefaultLimits().MaxAhead}
	}
	return limits
}

// ownTimes counts the readings of a file, and those that are accepted at their own times.
type ownTimes struct {
	limits                  vitals.Limits
	nowUnixMs, newestUnixMs int64
	rows, accepted          int
}

func (t *ownTimes) add(unixMs int64) {
	t.rows++
	t.newestUnixMs = max(t.newestUnixMs, unixMs)
	if t.limits.AcceptsTime(unixMs, t.nowUnixMs) {
		t.accepted++
	}
}

// upload sends the readings. It shows the progress, retries and rejected rows.
func (c *importCommand) upload(ctx context.Context, std stdio, client *transfer.Client, file io.Reader,
	reader recording.Reader, rejected *rejections) (transfer.Summary, error) {
	size := int64(-1)
	input, isFile := file.(*os.File)
	if isFile {
		if info, err := input.Stat(); err == nil {
			size = info.Size()
		}
	}
	bar := newByteProgress(std.err, "import")
	client.OnRetry = (&retries{out: std.err, bar: bar}).add
	sum, err := transfer.Upload(ctx, client, reader, transfer.UploadOptions{
		Batch: c.Batch,
		OnProgress: func(transfer.Summary) {
			if !isFile {
				return
			}
			if at, err := input.Seek(0, io.SeekCurrent); err == nil {
				bar.set(at, size)
			}
		},
		OnRefused: rejected.add,
	})
	bar.finish()
	rejected.end(sum)
	return sum, err
}

func (c *importCommand) print(out io.Writer, sum transfer.Summary) error {
	if c.JSON {
		return printJSON(out, sum)
	}
	_, err := fmt.Fprintf(out,
		"sent=%d stored=%d duplicate=%d rejected=%d failed=%d values=%d rows=%d no_sign=%d zeros_left_out=%d\n",
		sum.Sent, sum.Stored, sum.Duplicate, sum.Rejected, sum.Failed, sum.Values, sum.Rows, sum.NoSign, sum.Zeros)
	if c.DryRun && err == nil {
		_, err = fmt.Fprintf(out, "would_send=%d\n", sum.WouldSend)
	}
	if c.shaped() && err == nil {
		_, err = fmt.Fprintf(out, "missing=%d rounded=%d ignored=%d\n", sum.Missing, sum.Rounded, sum.Ignored)
	}
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

// retries reports that requests are sent again.
type retries struct {
	out   io.Writer
	bar   progress
	total int
}

// shownRetries bounds the number of lines about retries.
const shownRetries = 20

func (r *retries) add(err error, tries int, wait time.Duration) {
	r.total++
	if r.total > shownRetries {
		return
	}
	r.bar.clear()
	fmt.Fprintf(r.out, "%v; trying again in %s (retry %d of %d)\n", err,
		settings.FormatDuration(wait.Round(100*time.Millisecond)), tries, transfer.MaxTries-1)
	if r.total == shownRetries {
		fmt.Fprintln(r.out, "further retries are not reported")
	}
}

// rejections lists rejected rows, the first ones individually.
type rejections struct {
	out   io.Writer
	quiet bool
	total int

	file      *bufio.Writer // of --rejects; nil without
	format    string        // of the file
	delimiter byte          // of its cells
	shaped    bool          // the file is read by a mapping, so that nothing shifts it
	text      []byte        // buffer

	// The rows whose times the server rejected.
	ahead, old, expired int

	noZone int // rows of CSV whose times have no offset from UTC
}

// shownRejections is the number of rejected rows that are listed individually.
const shownRejections = 20

func (p *rejections) add(r transfer.Refusal) {
	p.total++
	for text, n := range map[string]*int{
		"ahead of the server's clock": &p.ahead, "the oldest time that this server accepts": &p.old,
		"older than this server keeps": &p.expired,
		"no time zone":                 &p.noZone,
	} {
		if r.Field == "time" && strings.Contains(r.Reason, text) {
			*n++
		}
	}
	if p.file != nil {
		p.text = recording.AppendRejected(p.text[:0], p.format, p.delimiter, r.Row, r.Line, r.Field, r.Reason)
		_, _ = p.file.Write(p.text) // Flush returns the error
	}
	if !p.quiet && p.total <= shownRejections {
		unit := "line"
		if p.format == recording.JSON {
			unit = "record"
		}
		fmt.Fprintf(p.out, "%s %d rejected: %s\n", unit, r.Line, r.Text())
	}
}

// end prints how many of all rows were not listed, and the remedies for the most common causes.
func (p *rejections) end(sum transfer.Summary) {
	if more := p.total - shownRejections; more > 0 && !p.quiet {
		fmt.Fprintf(p.out, "and %d more; --rejects FILE writes all\n", more)
	}
	if p.format == recording.NDJSON && !p.shaped {
		p.noZone = 0 // --zone is not for it
	}
	for _, cause := range []struct {
		n    int
		text string
	}{
		{p.ahead,
			"the time is ahead of the server's clock. If it is wrong, correct it; if it is right, set the server's clock, or " +
				"its --max-ahead."},
		{p.old, "the time is older than the server accepts. An integer is in milliseconds: multiply seconds by 1000. If it " +
			"is wrong, correct it; if it is right, set the server's --oldest."},
		{p.expired,
			"the time is older than the server keeps readings. If it is wrong, correct it; if it is right, set the " +
				"server's --retain."},
		{p.noZone,
			"the time has no offset from UTC. Name the zone of the file, such as --zone Europe/Berlin, or --zone Z if it is " +
				"in UTC; --as and --mapping read files of other forms."},
	} {
		if cause.n > 0 {
			fmt.Fprintf(p.out, "%d of %d rows: %s\n", cause.n, sum.Rows, cause.text)
		}
	}
	if p.ahead+p.old+p.expired > 0 && sum.Stored+sum.Duplicate+sum.WouldSend == 0 && !p.shaped {
		fmt.Fprintln(p.out,
			"If the dates of the whole recording are shifted, as de-identification does, '--shift-to now' moves all its rows.")
	}
}
