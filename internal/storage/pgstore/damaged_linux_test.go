package pgstore_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestUnreadable damages a segment, or a row, and stores readings of its times beside others: only they are rejected,
// and their units, as unreadable, long before the deadline.
func TestUnreadable(t *testing.T) {
	server := sharedServer(t)
	for _, tt := range []struct {
		name, damage string
		sealed       bool
	}{
		{"times of a segment", "UPDATE S.segments SET back = substr(back, 1, 9)", true},
		{"values of a segment", "UPDATE S.segments SET heart_rate_bpm = ''", true},
		{"gateway of a row", "UPDATE S.readings SET gateway = '' WHERE device = 'd' AND time_ms < 100", false},
		{"offset of a row", "UPDATE S.readings SET utc_offset = 9999 WHERE device = 'd' AND time_ms < 100", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(server)
			o.SealAtLeast, o.Timeout = 1, 10*polltest.Patience
			s := open(t, o)
			mustStore(t, s, reading("d", 1, 1), reading("d", 2, 1), reading("d", 3, 1), reading("d", 200, 1), reading("e", 1, 1))
			if tt.sealed && seal(t, s, 100) == 0 {
				t.Fatal("nothing was sealed")
			}
			execute(t, server, strings.ReplaceAll(tt.damage, "S.", o.Schema+"."))
			unit := []*storage.Entry{reading("e", 4, 1), reading("d", 2, 1)}
			unit[0].Unit = 2
			group := append([]*storage.Entry{reading("d", 1, 1), reading("d", 200, 1), reading("d", 300, 1), reading("e", 1, 1),
				reading("e", 2, 1)}, unit...)
			try(t, s.Append(group))
			for i, want := range []storage.Outcome{storage.Unreadable, storage.Duplicate, storage.Stored, storage.Duplicate,
				storage.Stored, 0, storage.Unreadable} {
				if got := group[i].Outcome; got != want {
					t.Errorf("reading %d got outcome %s, want %s", i, outcomeName(got), outcomeName(want))
				}
			}
			if _, err := s.Erase(group[0].Reading.Device); err != nil {
				t.Errorf("Erase returned %v", err)
			}
		})
	}
}
