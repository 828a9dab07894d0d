package vitals_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestDecodeBounds(t *testing.T) {
	long := with(`"spo2_pct":97`) // 52 bytes
	spaced := strings.Replace(long, ",", ", ", 1)
	unknown := with(`"spo2_pct":"` + strings.Repeat("x", 40) + `"`)
	for _, tt := range []struct {
		name    string
		body    string
		options vitals.DecoderOptions
		want    error
	}{
		{"as many as allowed", "[" + long + ",1," + long + "]", vitals.DecoderOptions{MaxReadings: 3}, nil},
		{"one too many", "[" + long + ",1," + long + ",1]", vitals.DecoderOptions{MaxReadings: 3}, vitals.ErrTooManyReadings},
		{"as many lines as allowed", long + "\n1\n" + long + "\n\n", vitals.DecoderOptions{MaxReadings: 3}, nil},
		{"one line too many", long + "\n1\n" + long + "\n1", vitals.DecoderOptions{MaxReadings: 3},
			vitals.ErrTooManyReadings},
		{"a mistake before that", long + "\n1 1\n" + long + "\n1", vitals.DecoderOptions{MaxReadings: 3}, vitals.ErrSyntax},
		{"as long as allowed", " " + long + " \n", vitals.DecoderOptions{MaxReadingBytes: len(long)}, nil},
		{"a byte too long", long, vitals.DecoderOptions{MaxReadingBytes: len(long) - 1}, vitals.ErrReadingTooLong},
		{"a space too long", spaced, vitals.DecoderOptions{MaxReadingBytes: len(long)}, vitals.ErrReadingTooLong},
		{"much too long", "[1," + unknown + "]", vitals.DecoderOptions{MaxReadingBytes: 60}, vitals.ErrReadingTooLong},
		{"a long number", "1" + strings.Repeat("0", 100), vitals.DecoderOptions{MaxReadingBytes: 60},
			vitals.ErrReadingTooLong},
		{"a number as long as allowed", strings.Repeat("1", 60) + "\n1", vitals.DecoderOptions{MaxReadingBytes: 60}, nil},
		{"a mistake before that", `{"device":x` + unknown, vitals.DecoderOptions{MaxReadingBytes: 60}, vitals.ErrSyntax},
		{"a character across the bound", `"` + strings.Repeat("x", 59) + "ä" + `"`,
			vitals.DecoderOptions{MaxReadingBytes: 60}, vitals.ErrReadingTooLong},
		{"an escape across the bound", `"` + strings.Repeat("x", 57) + `\ud83d\ude00"`,
			vitals.DecoderOptions{MaxReadingBytes: 60}, vitals.ErrReadingTooLong},
		{"cut off within the bound", `{"device":"`, vitals.DecoderOptions{MaxReadingBytes: 60}, vitals.ErrSyntax},
		{"cut off at the bound", `{"device":"`, vitals.DecoderOptions{MaxReadingBytes: 11}, vitals.ErrSyntax},
		{"default length", `"` + strings.Repeat("x", 16<<10-2) + `"`, vitals.DecoderOptions{}, nil},
		{"above default length", `"` + strings.Repeat("x", 16<<10-1) + `"`, vitals.DecoderOptions{},
			vitals.ErrReadingTooLong},
		{"default number", "[" + strings.Repeat("1,", 1<<18-1) + "1]", vitals.DecoderOptions{}, nil},
		{"above default number", "[" + strings.Repeat("1,", 1<<18) + "1]", vitals.DecoderOptions{},
			vitals.ErrTooManyReadings},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := decode(t, tt.body, tt.options); !errors.Is(err, tt.want) {
				t.Errorf("Decode = %v, want %v", err, tt.want)
			}
		})
	}
}
