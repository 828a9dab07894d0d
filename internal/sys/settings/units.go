package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Text makes parse the parser of all flags of its type.
func Text[T any](parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), mapper(func(_ *kong.Value, text string) (T, error) { return parse(text) },
		setAny[T]))
}

// Units requires a unit for every duration and accepts one for every number of bytes. It also
// words the errors for other numbers, times and log levels for people who do not know Go.
func Units() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		bytes := kong.PostBuild(func(k *kong.Kong) error {
			eachFlag(k.Model.Node, func(_ *kong.Node, flag *kong.Flag) {
				if isBytes(flag) {
					flag.Mapper = mapper(func(_ *kong.Value, text string) (int64, error) { return parseBytes(text) },
						reflect.Value.SetInt)
				}
			})
			return nil
		})
		duration := kong.TypeMapper(reflect.TypeFor[time.Duration](),
			mapper(func(v *kong.Value, text string) (time.Duration, error) {
				return parseDuration(text, usualUnit(v))
			}, setAny[time.Duration]))
		for _, option := range []kong.Option{
			duration, bytes, Text(parseTime), Text(parseLevel),
			Text(parseNumber(strconv.Atoi)),
			Text(parseNumber(func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })),
			Text(parseNumber(func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })),
			Text(parseFloat),
		} {
			if err := option.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// mapper returns a kong.Mapper that parses the text of a flag and sets the flag to the result.
func mapper[T any](parse func(*kong.Value, string) (T, error), set func(reflect.Value, T)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		v, err := parse(ctx.Value, text)
		if err == nil {
			set(target, v)
		}
		return err
	})
}

func setAny[T any](target reflect.Value, v T) { target.Set(reflect.ValueOf(v)) }

// parseNumber returns a parser of whole numbers.
func parseNumber[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		n, err := parse(text)
		switch {
		case errors.Is(err, strconv.ErrRange):
			err = fmt.Errorf("%s is out of range", text)
		case err != nil:
			err = fmt.Errorf("%q is not a whole number", text)
		}
		return n, err
	}
}

func parseFloat(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return n, nil
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is not a time in RFC 3339 with a zone, such as 2026-11-21T10:00:00Z", text)
	}
	return t, nil
}

func parseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if level.UnmarshalText([]byte(text)) != nil {
		return level, fmt.Errorf("%q is not a level; the levels are debug, info, warn and error", text)
	}
	return level, nil
}

// isBytes reports whether a flag is a number of bytes, by its name: units are part of the names
// of bare numbers.
func isBytes(flag *kong.Flag) bool {
	return strings.HasSuffix(flag.Name, "-bytes") && flag.Target.CanInt()
}

// day is a unit that package time does not have: 24 hours.
const day = 24 * time.Hour

// maxDays bounds durations in days, at about a century.
const maxDays = 36_500

// durationUnits lists the units of durations for error texts.
const durationUnits = "the units are ms, s, m, h and d"

// usualUnit returns the unit that a bare number most likely has as the value of a flag: that of
// the flag's default, or of its tag "unit".
func usualUnit(v *kong.Value) string {
	if v != nil {
		if unit := v.Tag.Get("unit"); unit != "" {
			return unit
		}
		unit := strings.TrimLeft(v.Default, "0123456789.")
		if slices.Contains([]string{"ms", "s", "m", "h", "d"}, unit) {
			return unit
		}
	}
	return "s"
}

// ParseDuration parses a duration with its unit, such as 90s, 1h30m or 400d.
func ParseDuration(text string) (time.Duration, error) { return parseDuration(text, "s") }

// parseDuration is [ParseDuration]. Its error suggests a unit for a bare number.
func parseDuration(text, unit string) (time.Duration, error) {
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
		return 0, fmt.Errorf("%s needs a unit; did you mean %s%s? (%s)", text, text, unit, durationUnits)
	}
	return 0, fmt.Errorf("%q is not a duration, such as 90s, 5m, 1h30m or 400d; %s", text, durationUnits)
}

// FormatDuration is the inverse of [ParseDuration]. It leaves out zero parts: 5m, not 5m0s.
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

// byteUnits are the units of IEC 80000-13 and of the SI. The list is never written to.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

// parseBytes parses a number of bytes, such as 1048576, 1MiB or 1.5 GB.
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
		return 0, fmt.Errorf("%q is not a whole number of bytes", text)
	}
	// 1M is ambiguous: 10⁶ or 2²⁰.
	if i := strings.LastIndexAny(text, "kKmMgGtT"); i > 0 && len(text)-i <= 2 {
		if _, err := strconv.ParseFloat(strings.TrimSpace(text[:i]), 64); err == nil {
			return 0, fmt.Errorf("%q is not a number of bytes; did you mean %s%ciB?", text, strings.TrimSpace(text[:i]),
				text[i]&^0x20)
		}
	}
	return 0,
		fmt.Errorf(
			"%q is not a number of bytes, such as 1048576 or 1MiB; the units are B, KiB, MiB, GiB, TiB, kB, MB, GB and TB", text)
}

// FormatBytes formats a number of bytes with the largest binary unit that divides it, such as
// 64KiB. The result parses as the same number.
func FormatBytes(n int64) string {
	text := strconv.FormatInt(n, 10)
	for _, u := range byteUnits[:4] {
		if unit := int64(u.bytes); n != 0 && n%unit == 0 {
			text = strconv.FormatInt(n/unit, 10) + u.name
		}
	}
	return text
}
