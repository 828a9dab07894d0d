package settings

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Units makes every duration need a unit, and lets every number of bytes have
// one.
func Units() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		return eachFlag(k.Model.Node, func(_ *kong.Node, flag *kong.Flag) error {
			switch {
			case isDuration(flag):
				flag.Mapper = kong.MapperFunc(decodeDuration)
			case isBytes(flag):
				flag.Mapper = kong.MapperFunc(decodeBytes)
			}
			return nil
		})
	})
}

func isDuration(flag *kong.Flag) bool { return flag.Target.Type() == reflect.TypeFor[time.Duration]() }

// isBytes goes by the name: units stand in the names of bare numbers.
func isBytes(flag *kong.Flag) bool {
	return strings.HasSuffix(flag.Name, "-bytes") && flag.Target.CanInt() && !isDuration(flag)
}

func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	target.SetInt(int64(d))
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%s needs a unit, such as %ss", text, text)
	}
	if strings.HasSuffix(text, "d") {
		return 0, fmt.Errorf("%q is no duration: a day is 24h", text)
	}
	return 0, fmt.Errorf("%q is no duration, such as 90s, 5m or 1h30m; the units are ms, s, m and h", text)
}

// FormatDuration is the inverse of parseDuration, and leaves out what is zero: 5m,
// not 5m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func decodeBytes(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("bytes", &text); err != nil {
		return err
	}
	n, err := parseBytes(text)
	if err != nil {
		return err
	}
	if target.OverflowInt(n) {
		return fmt.Errorf("%s is too much", text)
	}
	target.SetInt(n)
	return nil
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

// leastDays is the shortest time that Days holds.
const leastDays = time.Hour

// Days is a long time, such as 400d or 36h. 0 means for ever.
type Days time.Duration

// UnmarshalText reads a number of days, or what time.ParseDuration takes.
func (k *Days) UnmarshalText(text []byte) error {
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > 36_500 {
			return fmt.Errorf("%q is not from 1d to 36500d", text)
		}
		*k = Days(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	if d < leastDays {
		return fmt.Errorf("%q is less than %s", text, FormatDuration(leastDays))
	}
	*k = Days(d)
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (k Days) MarshalText() ([]byte, error) {
	const day = Days(24 * time.Hour)
	if k > 0 && k%day == 0 {
		return fmt.Appendf(nil, "%dd", k/day), nil
	}
	return []byte(FormatDuration(time.Duration(k))), nil
}
