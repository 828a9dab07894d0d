package mqtt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// DefaultTopic is the topic to which clients publish unless another one is configured.
const DefaultTopic = "pulsegate/{device}"

// A Topic is a pattern of topics, such as wards/{gateway}/{device}: levels of which {device} and
// {gateway} stand for a name.
type Topic struct {
	levels []string
}

// ParseTopic parses a pattern.
func ParseTopic(pattern string) (Topic, error) {
	levels := strings.Split(pattern, "/")
	seen := map[string]bool{}
	for _, l := range levels {
		switch {
		case l == "{device}" || l == "{gateway}":
			if seen[l] {
				return Topic{}, fmt.Errorf("%s stands twice in the topic %q", l, pattern)
			}
			seen[l] = true
		case l == "", strings.ContainsAny(l, "+#{}$\x00"), len(l) > vitals.MaxNameBytes:
			return Topic{}, fmt.Errorf("%q is not a level of a topic: write text, {device} or {gateway}", l)
		}
	}
	return Topic{levels}, nil
}

// HasDevice reports whether topics of t have the name of a device.
func (t *Topic) HasDevice() bool { return slices.Contains(t.levels, "{device}") }

// Overlaps reports whether a topic may have both patterns.
func (t *Topic) Overlaps(other *Topic) bool {
	return slices.EqualFunc(t.levels, other.levels, func(a, b string) bool { return a == b || a[0] == '{' || b[0] == '{' })
}

// Match returns the names in a topic, and false if it does not have the pattern.
func (t *Topic) Match(topic []byte) (from vitals.Origin, ok bool) {
	for i, want := range t.levels {
		level, rest, more := bytes.Cut(topic, []byte{'/'})
		if last := i == len(t.levels)-1; last == more {
			return vitals.Origin{}, false
		}
		topic = rest
		var err error
		switch want {
		case "{device}":
			from.Device, err = vitals.ParseName(level)
		case "{gateway}":
			from.Gateway, err = vitals.ParseName(level)
		default:
			if string(level) != want {
				err = errTopic
			}
		}
		if err != nil {
			return vitals.Origin{}, false
		}
	}
	return from, true
}

var errTopic = errors.New("not the configured topic")

// A Mapped is a pattern of topics whose payloads have an input of their own, which many goroutines may use.
type Mapped struct {
	Topic Topic
	Input ingest.Input
}

// A wrongTopic is the input of a publication to a topic that is not configured, or names another gateway than the
// client.
type wrongTopic struct{ otherGateway bool }

const topicField = "topic"

func (w wrongTopic) Decode([]byte, *ingest.Intake) error {
	if w.otherGateway {
		return ingest.OtherGateway(topicField, errTopic.Error())
	}
	return ingest.Invalid(topicField, errTopic.Error())
}
