package localtime_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/pulsegate/pulsegate/internal/api/localtime"
)

// TestInstant compares local times with all instants of two days at which a clock is changed, and of zones that
// change theirs by a day and by half an hour.
func TestInstant(t *testing.T) {
	for _, tt := range []struct{ zone, around string }{
		{"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"}, {"America/New_York", "2026-11-01"},
		{"Australia/Lord_Howe", "2026-04-05"}, {"Pacific/Apia", "2011-12-30"}, {"UTC", "2026-06-01"},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, _ := time.Parse(time.DateOnly, tt.around)
		instants := map[string][]int64{} // by what the clock shows
		const step = 15 * time.Minute
		for at := day.Add(-72 * time.Hour); at.Before(day.Add(72 * time.Hour)); at = at.Add(step) {
			shown := at.In(zone).Format(time.DateTime)
			instants[shown] = append(instants[shown], at.UnixMilli())
		}
		for wall := day.Add(-24 * time.Hour); wall.Before(day.Add(48 * time.Hour)); wall = wall.Add(step) {
			got, _, err := localtime.Instant(wall, zone)
			want := instants[wall.Format(time.DateTime)]
			switch len(want) {
			case 0:
				if err != localtime.ErrSkipped {
					t.Errorf("%s %v: %v, %v, want ErrSkipped", tt.zone, wall, got, err)
				}
			case 1:
				if err != nil || got != want[0] {
					t.Errorf("%s %v: %v, %v, want %v", tt.zone, wall, got, err, want)
				}
			default:
				if err != localtime.ErrTwice {
					t.Errorf("%s %v: %v, %v, want ErrTwice", tt.zone, wall, got, err)
				}
			}
		}
	}
	_, offset, _ := localtime.Instant(time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC), time.FixedZone("", -3*3600-1800))
	if minutes, _ := offset.Minutes(); minutes != -210 {
		t.Errorf("offset %d", minutes)
	}
}
