package settings

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Text has flags of a type read by parse.
func Text[T any](parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), mapper(parse, func(target reflect.Value, v T) { target.Set(reflect.ValueOf(v)) }))
}

// Units makes every duration need a unit, and lets every number of bytes have one.
func Units() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		bytes := kong.PostBuild(func(k *kong.Kong) error {
			eachFlag(k.Model.Node, func(_ *kong.Node, flag *kong.Flag) {
				if isBytes(flag) {
					flag.Mapper = mapper(parseBytes, reflect.Value.SetInt)
				}
			})
			return nil
		})
		return errors.Join(Text(ParseDuration).Apply(k), bytes.Apply(k))
	})
}

// mapper returns what sets a flag to what parse reads.
func mapper[T any](parse func(string) (T, error), set func(reflect.Value, T)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		v, err := parse(text)
		if err == nil {
			set(target, v)
		}
		return err
	})
}

// isBytes goes by the name: units stand in the names of bare numbers.
func isBytes(flag *kong.Flag) bool {
	return strings.HasSuffix(flag.Name, "-bytes") && flag.Target.CanInt()
}

// day is a unit of durations that package time does not have: one of 24 hours.
const day = 24 * time.Hour

// maxDays bounds durations in days, at about a century.
const maxDays = 36_500

// ParseDuration reads a duration with its unit, such as 90s, 1h30m or 400d.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > maxDays {
			return 0, fmt.Errorf("%q is not from 1d to %dd", text, maxDays)
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%s needs a unit, such as %ss", text, text)
	}
	return 0, fmt.Errorf("%q is no duration, such as 90s, 5m, 1h30m or 400d; the units are ms, s, m, h and d", text)
}

// FormatDuration is the inverse of [ParseDuration], and leaves out what is zero: 5m, not
// 5m0s.
func FormatDuration(d time.Duration) string {
	if days := d / day; d%day == 0 && days >= 1 && days <= maxDays {
		return fmt.Sprintf("%dd", days)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// byteUnits are those of IEC 80000-13, and those of the SI.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

// parseBytes returns a number of bytes such as 1048576, 1MiB or 1.5 GB.
func parseBytes(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	number, unit := text, 1.0
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	n := value * unit
	switch {
	case err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<62:
		return int64(n), nil
	case err == nil:
		return 0, fmt.Errorf("%q is no whole number of bytes", text)
	}
	// 1M is read as 10⁶ by some and as 2²⁰ by others.
	if i := strings.LastIndexAny(text, "kKmMgGtT"); i > 0 && len(text)-i <= 2 {
		if _, err := strconv.ParseFloat(strings.TrimSpace(text[:i]), 64); err == nil {
			return 0, fmt.Errorf("%q is no number of bytes; did you mean %s%ciB?", text, strings.TrimSpace(text[:i]), text[i]&^0x20)
		}
	}
	return 0, fmt.Errorf("%q is no number of bytes, such as 1048576 or 1MiB", text)
}
