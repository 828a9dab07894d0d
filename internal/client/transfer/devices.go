package transfer

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Device is a device with its latest values.
type Device struct {
	Name   string            `json:"device"`
	Time   Time              `json:"time"`   // of the newest reading
	Latest map[string]Latest `json:"latest"` // by the JSON field of the sign

	AssignedNow string `json:"assigned_now,omitempty"` // the subject
}

// A Latest is the latest value of one sign.
type Latest struct {
	Value     jsontext.Value `json:"value"` // a number, as the server sent it
	Time      Time           `json:"time"`
	UTCOffset *int           `json:"utc_offset_minutes,omitempty"` // with which the time was sent; nil means unknown
	Subject   string         `json:"subject,omitempty"`            // to which the device was assigned at Time
	Flags     []string       `json:"flags,omitempty"`
}

// A Time is encoded as the server sends it, always with three decimals of a second: pandas infers the form of a column
// from its first value.
type Time struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return append(vitals.AppendTime([]byte{'"'}, t.UnixMilli()), '"'), nil
}

// clean makes the texts of d printable.
func (d *Device) clean() {
	d.Name, d.AssignedNow = printable(d.Name), printable(d.AssignedNow)
	for field, latest := range d.Latest {
		latest.Subject = printable(latest.Subject)
		d.Latest[field] = latest
		for i := range latest.Flags {
			latest.Flags[i] = printable(latest.Flags[i])
		}
	}
}

// Device returns one device.
func (c *Client) Device(ctx context.Context, name string) (Device, error) {
	var d Device
	if err := fetch(ctx, c, "/v1/devices/"+url.PathEscape(name), &d); err != nil {
		return d, fmt.Errorf("fetch device %s: %w", name, err)
	}
	d.clean()
	return d, nil
}

// Devices visits the devices that the client may read, in the order of their names, page by
// page. It stops at the first error of visit, and after limit devices unless limit is 0.
func (c *Client) Devices(ctx context.Context, limit int, visit func(page []Device) error) error {
	const most = 1000 // of one page
	query := url.Values{}
	for left := limit; ; {
		size := most
		if limit > 0 {
			size = min(left, most)
		}
		query.Set("limit", strconv.Itoa(size))
		var page struct {
			Devices []Device `json:"devices"`
			Next    string   `json:"next_cursor"`
		}
		if err := fetch(ctx, c, "/v1/devices?"+query.Encode(), &page); err != nil {
			return fmt.Errorf("list devices: %w", err)
		}
		if page.Devices == nil {
			return fmt.Errorf("list devices: %w", ErrNotPulsegate)
		}
		for i := range page.Devices {
			page.Devices[i].clean()
		}
		if err := visit(page.Devices); err != nil {
			return err
		}
		left -= len(page.Devices)
		if page.Next == "" || limit > 0 && left <= 0 {
			return nil
		}
		if page.Next == query.Get("cursor") {
			return fmt.Errorf("list devices: %w: it repeats a page", ErrNotPulsegate)
		}
		query.Set("cursor", page.Next)
	}
}

// Units returns the unit of each sign of the server, as UCUM codes by field.
func (c *Client) Units(ctx context.Context) (map[string]string, error) {
	var limits struct {
		Signs map[string]struct {
			Unit string `json:"unit"`
		} `json:"signs"`
	}
	if err := fetch(ctx, c, "/v1/limits", &limits); err != nil {
		return nil, fmt.Errorf("fetch signs: %w", err)
	}
	units := map[string]string{}
	for field, s := range limits.Signs {
		units[field] = printable(s.Unit)
	}
	return units, nil
}

// TimeLimits returns which times the server accepts. Of the limits of values it knows nothing.
func TimeLimits(ctx context.Context, c *Client) (vitals.Limits, error) {
	var limits struct {
		Oldest  string  `json:"oldest"`
		AheadS  float64 `json:"max_ahead_seconds"`
		MaxAgeS float64 `json:"max_age_seconds"`
	}
	if err := fetch(ctx, c, "/v1/limits", &limits); err != nil {
		return vitals.Limits{}, fmt.Errorf("fetch limits of times: %w", err)
	}
	oldest, _, err := vitals.ParseRFC3339(limits.Oldest)
	if err != nil {
		return vitals.Limits{}, fmt.Errorf("fetch limits of times: %w", ErrNotPulsegate)
	}
	duration := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	return vitals.Limits{OldestUnixMs: oldest, MaxAhead: duration(limits.AheadS), MaxAge: duration(limits.MaxAgeS)}, nil
}

// fetch gets a JSON document into v.
func fetch(ctx context.Context, c *Client, path string, v any) error {
	resp, err := c.Get(ctx, path)
	if err != nil {
		return err
	}
	return readAnswer(resp, v)
}
