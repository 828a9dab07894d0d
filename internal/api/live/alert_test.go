package live_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/query"
)

// alerts returns the data of the alerts read so far.
func (s *stream) alerts() (data []string) {
	for _, m := range s.messages() {
		if m.event == "alert" {
			data = append(data, m.data)
		}
	}
	return data
}

// Alerts that begin or end are sent to the streams that select their device and may read it.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := gatetest.New(t)
		all := keys.Token(t, "archive", "", token.Token{Rights: token.Read})
		ward := keys.Token(t, "ward-7", "ppg-", token.Token{Rights: token.Read})
		g := openGate(t, keys.Tokens)
		defer g.Tokens.Close()
		f := start(t, live.Options{Service: query.Service{Gate: g}})
		defer f.stop()
		rule := &alert.Rule{Name: "Low", Field: "spo2_pct", Condition: "spo2_pct below 90",
			Labels: map[string]string{"severity": "page"}}
		of := func(device string, ended int64) alert.Alert {
			return alert.Alert{Rule: rule, Device: name(device), SinceUnixMs: 1000, EndedUnixMs: ended}
		}
		f.hub.PublishAlerts([]alert.Alert{of("ppg-1", 0)}, false) // before anybody watches
		streams := map[string]*stream{}
		for _, want := range []struct{ auth, target string }{{all, ""}, {all, "?device=x"}, {all, "?prefix=q"}, {ward, ""},
			{ward, "?device=ppg-2"}} {
			s := f.open(want.target, nil, "Authorization", want.auth)
			defer s.close()
			streams[map[string]string{all: "all", ward: "ward"}[want.auth]+want.target] = s
		}
		settle()
		f.hub.PublishAlerts([]alert.Alert{of("ppg-1", 0), of("x", 0), of("ppg-2", 0), of("ppg-1", 2000)}, false)
		settle()
		text := func(device, rest string) string {
			return `{"name":"Low","device":"` + device +
				`","sign":"spo2_pct","condition":"spo2_pct below 90","labels":{"severity":"page"},` +
				`"since":"1970-01-01T00:00:01.000Z"` + rest + "}"
		}
		first, second, ended, x := text("ppg-1", ""), text("ppg-2", ""), text("ppg-1", `,"ended":"1970-01-01T00:00:02.000Z"`),
			text("x", "")
		for key, want := range map[string][]string{
			"all": {first, x, second, ended}, "all?device=x": {x}, "all?prefix=q": nil, "ward": {first, second, ended},
			"ward?device=ppg-2": {second},
		} {
			if got := streams[key].alerts(); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", key, got, want)
			}
			if n := streams[key].missed(); n != 0 {
				t.Errorf("%s: %d events are missing", key, n)
			}
		}
	})
}

// A stream whose client does not read holds a bounded number of alerts. It is told how many events it
// missed, and gets those that follow.
func TestAlertsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{Service: query.Service{PieceTimeout: time.Hour}})
		defer f.stop()
		block := make(chan struct{})
		slow, fast := f.open("", func() { <-block }), f.open("", nil)
		defer slow.close()
		defer fast.close()
		settle()
		const rounds, each = 40, 50
		var sent []string
		for i := range rounds {
			var some []alert.Alert
			for j := range each {
				rule := &alert.Rule{Name: fmt.Sprintf("Rule%d-%d", i, j)}
				some = append(some, alert.Alert{Rule: rule, Device: name("d"), SinceUnixMs: 1})
				sent = append(sent, rule.Name)
			}
			f.hub.PublishAlerts(some, false)
			settle()
		}
		close(block)
		settle()
		if got := len(slow.alerts()) + slow.missed(); got != len(sent) || slow.missed() == 0 {
			t.Errorf("of %d alerts, %d were sent and %d missed", len(sent), len(slow.alerts()), slow.missed())
		}
		if last := slow.alerts()[len(slow.alerts())-1]; !strings.Contains(last, sent[len(sent)-1]) {
			t.Errorf("the last one is %s", last)
		}
		if got := len(fast.alerts()); got != len(sent) || fast.missed() != 0 {
			t.Errorf("another stream got %d of %d, and missed %d", got, len(sent), fast.missed())
		}
		f.hub.PublishAlerts(nil, true)
		settle()
		if fast.missed() == 0 {
			t.Error("a lost change is not reported")
		}
	})
}
