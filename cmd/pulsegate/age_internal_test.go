package main

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0:                              "0s",
		1500 * time.Millisecond:        "1s",
		59 * time.Second:               "59s",
		200 * time.Second:              "3m20s",
		2*time.Hour + 3*time.Minute:    "2h3m",
		25*time.Hour + 59*time.Minute:  "1d1h",
		400*24*time.Hour + time.Second: "400d0h",
		-time.Minute:                   "in the future",
	} {
		if got := age(now.Add(-ago), now); got != want {
			t.Errorf("%v ago: got %q, want %q", ago, got, want)
		}
	}
}
