// Package roster has the labels and groups that people give to devices, and the ranges of values that are usual for
// some of them, as a file says them.
//
// # Promise
//
// A [Roster] is what one version of the file says, and never changes. A [Book] has the Roster in force: after a
// version that cannot be used, the one before.
//
// # Not here
//
// Who may see a device: package gate. A label is shown, searched and counted only beside its device, to clients that
// may read that device.
package roster

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Device is what a file says of a device. The zero Device says nothing.
type Device struct {
	Label string // by which people know it, such as "Bed 12"
	Group string // such as a ward

	folded string // Label, for searches without case
}

// AppendTo appends the members label and group of a JSON object, after other members.
func (d Device) AppendTo(dst []byte) []byte {
	for _, m := range [...]struct{ name, text string }{{`,"label":`, d.Label}, {`,"group":`, d.Group}} {
		if m.text != "" {
			dst, _ = jsontext.AppendQuote(append(dst, m.name...), m.text) // the text is valid UTF-8
		}
	}
	return dst
}

// A Roster has the devices of a file. A nil Roster has none.
type Roster struct {
	devices map[vitals.Name]Device
	groups  []string // sorted

	ofDevices  map[vitals.Name][]signRanges
	ofGroups   map[string][]signRanges
	ofSubjects map[storage.Subject][]signRanges
}

// Of returns what the file says of a device.
func (r *Roster) Of(device *vitals.Name) Device {
	if r == nil {
		return Device{}
	}
	return r.devices[*device]
}

// Len returns the number of devices.
func (r *Roster) Len() int {
	if r == nil {
		return 0
	}
	return len(r.devices)
}

// Groups returns the groups of the devices that covers accepts, sorted. If covers is nil, it returns all groups, which
// must not be modified.
func (r *Roster) Groups(covers func(*vitals.Name) bool) []string {
	switch {
	case r == nil:
		return nil
	case covers == nil:
		return r.groups
	}
	groups := map[string]bool{}
	for name, d := range r.devices {
		if d.Group != "" && !groups[d.Group] && covers(&name) {
			groups[d.Group] = true
		}
	}
	return sorted(groups)
}

func sorted(groups map[string]bool) []string {
	all := make([]string, 0, len(groups))
	for g := range groups {
		all = append(all, g)
	}
	slices.Sort(all)
	return all
}

// Fold returns a text for Selects, so that case does not matter.
func Fold(text string) string { return strings.ToLower(text) }

// Selects reports whether a device is in a group, and has a text that Fold has returned in its name or its label. An
// empty group or text selects every device.
func (r *Roster) Selects(device *vitals.Name, folded, group string) bool {
	if folded == "" && group == "" {
		return true
	}
	d := r.Of(device)
	if group != "" && d.Group != group {
		return false
	}
	var name [vitals.MaxNameBytes]byte
	n := copy(name[:], device.Bytes())
	for i, c := range name[:n] {
		if 'A' <= c && c <= 'Z' {
			name[i] = c + 'a' - 'A'
		}
	}
	return bytes.Contains(name[:n], []byte(folded)) || strings.Contains(d.folded, folded)
}

// A Book has the Roster in force. A nil Book has a nil Roster.
type Book struct {
	current atomic.Pointer[Roster]
	file    *filewatch.Follower
}

// Open reads a file, whose ranges are of the signs of limits, and follows its changes until Close. onLoad is called
// after each change, with the error of a version that cannot be used.
func Open(path string, limits *vitals.Limits, onLoad func(*Roster, error)) (b *Book, err error) {
	b = &Book{}
	b.file, err = filewatch.Follow(filewatch.Options{
		Paths: []string{path}, Final: []error{ErrFile},
		Load: func() (bool, error) {
			r, err := Read(path, limits)
			if err == nil {
				b.current.Store(r)
			}
			return err == nil, err
		},
		OnLoad: func(err error) { onLoad(b.Current(), err) },
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Current returns the Roster in force.
func (b *Book) Current() *Roster {
	if b == nil {
		return nil
	}
	return b.current.Load()
}

// Reload reads the file now.
func (b *Book) Reload() error {
	if b == nil {
		return nil
	}
	return b.file.Reload()
}

// Close stops following the file.
func (b *Book) Close() {
	if b != nil {
		b.file.Close()
	}
}

// Describe implements prometheus.Collector.
func (b *Book) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(b, ch) }

// Collect implements prometheus.Collector.
func (b *Book) Collect(ch chan<- prometheus.Metric) {
	to, oneIf := metrics.Sink(ch), map[bool]float64{true: 1}
	to.Gauge("pulsegate_devices_file_entries", "Devices in the file of --devices that is in force.",
		float64(b.Current().Len()))
	to.Gauge("pulsegate_devices_file_stale",
		"1 if the file of --devices cannot be used, so that an older version is in force.", oneIf[b.file.Stale()])
}
