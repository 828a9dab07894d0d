package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/vitals"
)

// A readClient is a client of the read API. It is safe for concurrent use.
type readClient struct {
	*transfer.Client
	rules *vitals.Validator
}

func newReadClient(target *Target, token string, signs *vitals.Signs) (readClient, error) {
	client, err := transfer.NewClient(target.url, transfer.Credentials{Token: token, TLS: target.tlsConfig(),
		Dial: target.dialContext})
	return readClient{client, recording.AnyValue(signs, 0)}, err
}

// notPulsegate returns an error for an answer that Pulsegate would not give.
func notPulsegate(what string) error {
	return fmt.Errorf("%w: %s", transfer.ErrNotPulsegate, what)
}

// readings calls f for every stored reading of a device, in the order sent by the
// server. If a response is cut off, it continues after the last complete reading.
func (c readClient) readings(ctx context.Context, device string, f func(*vitals.Reading) error) error {
	name, err := vitals.ParseName(device)
	if err != nil {
		return fmt.Errorf("%w: it lists a device with an invalid name: %w", transfer.ErrNotPulsegate, err)
	}
	from := int64(math.MinInt64)
	decoder := vitals.NewDecoder(c.rules, vitals.DecoderOptions{IgnoreUnknown: true, MaxReadings: 1})
	var batch vitals.Batch
	page := func() error {
		selection := transfer.Selection{Device: device}
		if from != math.MinInt64 {
			selection.From = strconv.FormatInt(from, 10)
		}
		err := c.Readings(ctx, selection, func(line []byte) (err error) {
			if decoder.Decode(line, vitals.MaxTimeUnixMs, &batch) != nil || len(batch.Readings) != 1 {
				return notPulsegate("a line is not a reading")
			}
			r := &batch.Readings[0]
			if r.UTCOffset, err = offsetIn(line); err != nil {
				return notPulsegate("an offset from UTC is malformed")
			}
			if r.Device != name {
				return notPulsegate("the readings of a device include one of another device")
			}
			from = r.TimeUnixMs + 1
			return f(r)
		})
		if problem, ok := errors.AsType[*transfer.Problem](err); ok && problem.Status == http.StatusNotFound {
			return nil // the device has no readings
		}
		return err
	}
	if err := c.Retry(ctx, page); err != nil {
		return fmt.Errorf("read back device %s: %w", device, err)
	}
	return nil
}

// offsetIn returns the offset from UTC in a line, which is a reading as the server writes it.
func offsetIn(line []byte) (vitals.UTCOffset, error) {
	_, text, found := bytes.Cut(line, []byte(`,"utc_offset_minutes":`))
	if !found {
		return 0, nil
	}
	text, _, _ = bytes.Cut(text, []byte(","))
	return recording.ParseOffset(text, 0)
}

// probe sends one request to find out early whether the target is Pulsegate. For a
// token without the read right, 403 is proof as well.
func probe(ctx context.Context, target *Target, token string) error {
	c, err := newReadClient(target, token, vitals.NewSigns())
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = c.Devices(ctx, 1, func([]transfer.Device) error { return nil })
	problem, ok := errors.AsType[*transfer.Problem](err)
	switch {
	case err == nil:
		return nil
	case ok && (problem.Status == http.StatusForbidden || problem.Status == http.StatusServiceUnavailable ||
		problem.Status == http.StatusTooManyRequests):
		return nil
	case ok && problem.Status == http.StatusUnauthorized:
		return fmt.Errorf("the target requires a valid token; name one with --token-file: %w", problem)
	case ok:
		return fmt.Errorf("%w: %w", transfer.ErrNotPulsegate, err)
	case errors.Is(err, transfer.ErrNotPulsegate):
		return err
	}
	return fmt.Errorf("the target cannot be reached: %w", err)
}
