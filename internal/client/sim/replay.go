package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxRecordedRows bounds the memory of a recording to 24 MB.
const maxRecordedRows = 1_000_000

// ErrNoRecording means that a file has too few readings to be replayed.
var ErrNoRecording = errors.New("sim: a recording needs at least two readings in ascending order of time")

// A Recording is a sequence of signs and time steps that wearers replay. It is
// immutable.
type Recording struct {
	rows   []recordedRow
	meanMs int64 // mean of all steps
}

type recordedRow struct {
	stepMs int64 // since the previous row; in the first row, the mean
	values vitals.Values
}

// OpenRecording reads the recording in a CSV or NDJSON file. The path "mimic2" means the
// built-in recording. columns are the columns of a CSV file.
func OpenRecording(path string, columns recording.Mapping) (*Recording, error) {
	device, err := vitals.ParseName("recorded") // for files without device names
	if err != nil {
		return nil, err
	}
	opt := recording.Options{Mapping: columns, Device: device}
	if path == "mimic2" {
		opt.Mapping = recording.MIMIC2Mapping()
		return readRecording(strings.NewReader(recording.MIMIC2), recording.CSV, opt)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readRecording(file, cmp.Or(recording.FormatOf(path), recording.CSV), opt)
}

func readRecording(file io.Reader, format string, opt recording.Options) (*Recording, error) {
	reader, err := recording.New(file, format, opt)
	if err != nil {
		return nil, err
	}
	return ReadRecording(reader)
}

// ReadRecording reads a whole recording. It skips rows that are not readings or whose
// time is not after the previous one.
func ReadRecording(r recording.Reader) (*Recording, error) {
	rec := &Recording{}
	var firstMs, lastMs int64
	for {
		reading, _, err := r.Next()
		_, isRowError := errors.AsType[*recording.RowError](err)
		n := int64(len(rec.rows))
		switch {
		case err == io.EOF && n < 2:
			return nil, ErrNoRecording
		case err == io.EOF:
			rec.meanMs = max((lastMs-firstMs)/(n-1), 1)
			rec.rows[0].stepMs = rec.meanMs
			return rec, nil
		case isRowError:
			continue
		case err != nil:
			return nil, fmt.Errorf("read recording: %w", err)
		case n == maxRecordedRows:
			return nil, fmt.Errorf("sim: the recording has more than %d readings", maxRecordedRows)
		case n == 0:
			firstMs, lastMs = reading.TimeUnixMs, reading.TimeUnixMs
		case reading.TimeUnixMs <= lastMs:
			continue
		}
		rec.rows = append(rec.rows, recordedRow{reading.TimeUnixMs - lastMs, reading.Values})
		lastMs = reading.TimeUnixMs
	}
}

// replay returns the wearer's next recorded reading with jitter, so that no two devices
// send the same values. It has the same signs as recorded.
func (w *wearer) replay(m *model) (stepMs int64, values vitals.Values) {
	rec, r := m.recorded, &w.random
	row := &rec.rows[w.row]
	if w.row++; int(w.row) == len(rec.rows) {
		w.row = 0
	}
	// Keep the recording's rhythm at the pace of the model.
	stepMs = row.stepMs * m.intervalMs / rec.meanMs
	if j := min(stepMs/50, secondMs); j > 0 {
		stepMs += r.between(-j, j)
	}
	for s := range vitals.Sign(vitals.NumSigns) {
		v, ok := row.values.Get(s)
		if !ok {
			continue
		}
		b := replayBounds[s]
		values.Set(s, oneDecimal(int64(v)+r.normal(b.jitter), b.least, b.most))
	}
	// Jitter must not make the diastolic pressure exceed the systolic.
	if systolic, ok := values.Get(vitals.Systolic); ok {
		if diastolic, ok := values.Get(vitals.Diastolic); ok && diastolic >= systolic {
			values.Set(vitals.Diastolic, oneDecimal(int64(systolic)-10, 2000, 25000))
		}
	}
	return max(stepMs, 1), values
}

// replayBounds has, for each sign, the standard deviation of the jitter and the range
// that a server accepts by default, in hundredths.
var replayBounds = [vitals.NumSigns]struct{ jitter, least, most int64 }{
	vitals.Systolic:         {100, 4000, 30000},
	vitals.Diastolic:        {100, 2000, 25000},
	vitals.SpO2:             {30, 100, 10000},
	vitals.HeartRate:        {60, 2000, 30000},
	vitals.RestingHeartRate: {40, 2000, 30000},
}
