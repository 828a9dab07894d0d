package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Summary describes the outcome of an upload.
type Summary struct {
	Sent      int `json:"sent"`      // readings sent
	Stored    int `json:"stored"`    // stored by this upload
	Duplicate int `json:"duplicate"` // stored before
	Rejected  int `json:"rejected"`  // rejected by the server, or invalid rows, which are not sent
	Failed    int `json:"failed"`    // outcome unknown

	Values int `json:"values"`  // values of the stored and duplicate readings
	Rows   int `json:"rows"`    // rows of the file: stored, duplicate, rejected, failed or without a vital sign
	NoSign int `json:"no_sign"` // rows without a vital sign, skipped
	Zeros  int `json:"zeros"`   // zeros that mean "no signal", skipped

	WouldSend int `json:"would_send,omitzero"` // valid readings of a dry run, which sends nothing

	// Of files that a mapping describes.
	Missing int `json:"missing,omitzero"` // cells with a text that is no value
	Rounded int `json:"rounded,omitzero"` // values that were rounded
	Ignored int `json:"ignored,omitzero"` // rows that the mapping does not fit, skipped
}

// A Refusal is a row of a recording that was not stored.
type Refusal struct {
	Line   int    // 1-based line in the file
	Field  string // "" for the whole row
	Reason string
	Row    []byte // its text, or nil if the Reader keeps none; valid until OnRefused returns
}

// Text returns the field and the reason.
func (r Refusal) Text() string { return strings.TrimPrefix(r.Field+": "+r.Reason, ": ") }

// UploadOptions configure [Upload].
type UploadOptions struct {
	Batch      int           // readings per request; 0: 500
	OnProgress func(Summary) // called after each batch; may be nil
	OnRefused  func(Refusal) // called for each row that was not stored; may be nil
}

// An uploader is the state of Upload.
type uploader struct {
	client *Client
	signs  *vitals.Signs
	opt    UploadOptions
	sum    Summary
	body   []byte
	lines  []int    // line of each reading in the batch
	rows   [][]byte // text of its row

	textBytes int // of rows

	valuesN []int // number of values of each reading in the batch
}

// maxTextBytes bounds the texts of the rows in a batch, which are kept for those that the server rejects.
const maxTextBytes = 8 << 20

// Upload sends all readings of r. The Summary is valid even with an error, which means
// that not all of r was sent.
func Upload(ctx context.Context, client *Client, r recording.Reader, opt UploadOptions) (Summary, error) {
	if opt.Batch <= 0 {
		opt.Batch = 500
	}
	u := &uploader{client: client, signs: r.Signs(), opt: opt}
	for {
		reading, line, err := r.Next()
		u.sum.Count(r.Counts())
		var row *recording.RowError
		switch {
		case err == io.EOF:
			err := u.flush(ctx)
			return u.sum, err
		case errors.As(err, &row):
			u.refuse(Refusal{Line: row.Line, Field: row.Field, Reason: row.Err.Error(), Row: r.Text()})
			continue
		case err != nil:
			return u.sum, errors.Join(u.flush(ctx), err)
		}
		u.add(&reading, line, r.Text())
		if len(u.lines) == opt.Batch || u.textBytes > maxTextBytes {
			if err := u.flush(ctx); err != nil {
				return u.sum, err
			}
		}
	}
}

// Count copies the counts of a recording.
func (s *Summary) Count(c recording.Counts) {
	s.Rows, s.NoSign, s.Zeros = c.Rows, c.NoSign, c.Zeros
	s.Missing, s.Rounded, s.Ignored = c.Missing, c.Rounded, c.Ignored
}

func (u *uploader) refuse(r Refusal) {
	u.sum.Rejected++
	if u.opt.OnRefused != nil {
		u.opt.OnRefused(r)
	}
}

// add adds a reading to the batch.
func (u *uploader) add(r *vitals.Reading, line int, row []byte) {
	if len(u.lines) == 0 {
		u.body = append(u.body[:0], '[')
	} else {
		u.body = append(u.body, ',')
	}
	u.body = u.signs.AppendJSON(u.body, r)
	u.lines = append(u.lines, line)
	u.rows = append(u.rows, bytes.Clone(row))
	u.textBytes += len(row)
	u.valuesN = append(u.valuesN, bits.OnesCount32(r.Values.Present()))
}

// flush sends the batch and counts its outcome.
func (u *uploader) flush(ctx context.Context) error {
	n := len(u.lines)
	if n == 0 {
		return nil
	}
	defer func() {
		clear(u.rows)
		u.lines, u.rows, u.valuesN, u.textBytes = u.lines[:0], u.rows[:0], u.valuesN[:0], 0
	}()
	u.body = append(u.body, ']')
	u.sum.Sent += n
	answer, err := u.client.SendBatch(ctx, u.body, n)
	if err != nil {
		u.sum.Failed += n
		return fmt.Errorf("send lines %d to %d: %w", u.lines[0], u.lines[n-1], err)
	}
	u.sum.Stored += answer.Stored
	u.sum.Duplicate += answer.Duplicate
	for _, values := range u.valuesN {
		u.sum.Values += values
	}
	for _, r := range answer.Rejected {
		u.sum.Values -= u.valuesN[r.Index]
		u.refuse(Refusal{Line: u.lines[r.Index], Field: r.Field, Reason: r.Reason, Row: u.rows[r.Index]})
	}
	if u.opt.OnProgress != nil {
		u.opt.OnProgress(u.sum)
	}
	return nil
}
