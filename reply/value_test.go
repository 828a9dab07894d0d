package reply_test

import (
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/reply"
)

// Header.Add copies a shared value: other headers do not change.
func TestSharedValuesAreNotWrittenByAdd(t *testing.T) {
	for what, value := range map[string]func() []string{
		"Value":    func() []string { return reply.Value("a") },
		"IntValue": func() []string { return reply.IntValue(7) },
		"table":    func() []string { return reply.IntValue(8) },
	} {
		shared := value()
		want := shared[0]
		h := http.Header{"X": shared}
		h.Add("X", "more")
		if got := shared[:cap(shared)]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: shared slice became %q", what, got)
		}
		h.Set("X", "other")
		if shared[0] != want {
			t.Errorf("%s: Set wrote into the shared slice", what)
		}
	}
	if got := reply.IntValue(8)[0]; got != "8" {
		t.Errorf("IntValue(8) = %s after an Add to IntValue(7)", got)
	}
}
