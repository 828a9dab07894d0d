package query_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// openRoster returns the labels and ranges that a file says.
func openRoster(t *testing.T, text string) *roster.Book {
	t.Helper()
	path := filepath.Join(t.TempDir(), "devices.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	book, err := roster.Open(path, new(vitals.NewSigns().DefaultLimits()), func(*roster.Roster, error) {})
	try(t, err)
	t.Cleanup(book.Close)
	return book
}

// TestOwnRanges checks that values are flagged by the ranges of the subject of their time, of their device and of its
// group, wherever flags are shown, counted or selected.
func TestOwnRanges(t *testing.T) {
	book := openRoster(t, `
[[device]]
device = "d-1"
group = "neonates"

[[device]]
device = "d-2"
usual = { spo2_pct = "60.." }

[[group]]
group = "neonates"
usual = { heart_rate_bpm = "100..180" }

[[subject]]
subject = "P-1"
usual = { spo2_pct = "88..92" }
critical = { spo2_pct = "..75" }
`)
	now := fleetNow.UnixMilli()
	line := func(device string, agoMs int64, values string) string {
		return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, now-agoMs, values)
	}
	store := fill(t,
		line("d-1", 3000, `"spo2_pct":90,"heart_rate_bpm":140`), // of P-2
		line("d-1", 2000, `"spo2_pct":90`),                      // of P-1
		line("d-1", 1000, `"spo2_pct":93`),
		line("d-2", 1000, `"spo2_pct":65,"heart_rate_bpm":140`),
		line("d-3", 1000, `"spo2_pct":90`), line("d-4", 1000, `"spo2_pct":80`),
	)
	assignTo(t, store, "d-1", "P-2", 1, now-2500)
	assignTo(t, store, "d-1", "P-1", now-2500, storage.OpenEnd)
	assignTo(t, store, "d-4", "P-1", now-1000, storage.OpenEnd)
	srv := serveWorst(t, store, nil, query.Options{
		Service: query.Service{Roster: book, Subjects: store}, Now: func() time.Time { return fleetNow },
	})
	flags := func(text string) (all []string) { // of each value or reading, in their order
		for _, m := range regexp.MustCompile(`"flags":\[(.*?)\]`).FindAllStringSubmatch(text, -1) {
			all = append(all, strings.ReplaceAll(m[1], `"`, ""))
		}
		return all
	}
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/devices/d-1", "", "spo2_pct high"},
		{"/v1/devices/d-2", "", "heart_rate_bpm high,spo2_pct outside validated range"},
		{"/v1/devices", "",
			"spo2_pct high|spo2_pct outside validated range|heart_rate_bpm high|spo2_pct low|spo2_pct low"},
		{"/v1/devices/d-1/readings", "", "spo2_pct low|spo2_pct high"},
		{"/v1/devices/d-1/readings?format=ndjson&order=desc", "", "spo2_pct high|spo2_pct low"},
		{"/v1/devices/d-1/readings?flag=spo2_pct+low", "", "spo2_pct low"},
		{"/v1/devices/d-2/readings?flag=spo2_pct+low", "", ""},
		{"/v1/devices/d-3/readings", "", "spo2_pct low"},
		{"/v1/subjects/readings", `{"subject":"P-1"}`, "spo2_pct high|spo2_pct low"},
		{"/v1/subjects/readings?flag=any", `{"subject":"P-1"}`, "spo2_pct high|spo2_pct low"},
		{"/v1/subjects/latest", `{"subject":"P-1"}`, "spo2_pct low"},
	} {
		var text string
		if tt.body == "" {
			_, text = get(t, srv, tt.path)
		} else {
			_, text = post(t, srv, tt.path, tt.body)
		}
		got := flags(text)
		want := strings.Split(tt.want, "|")
		if tt.want == "" {
			want = nil
		}
		if tt.path == "/v1/devices/d-2" { // by sign
			slices.Sort(got)
			want = strings.Split(tt.want, ",")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q: %s", tt.path, got, want, text)
		}
	}
	for _, tt := range []struct{ path, want string }{
		{"/v1/devices/d-1", `{"device":"d-1","group":"neonates",` +
			`"ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"},` +
			`"critical":{"max":75,"of":"subject"}},` +
			`"heart_rate_bpm":{"usual":{"min":100,"max":180,"of":"group"}}},"time":`},
		{"/v1/devices", `{"device":"d-2","ranges":{"spo2_pct":{"usual":{"min":60,"of":"device"},` +
			`"critical":{"max":59.99,"of":"device"}}},"time":`},
		{"/v1/devices?counts=true", `"counts":{"devices":4,"fresh":4,"stale":0,"flagged":4}`},
		{"/v1/devices/d-1/readings?format=csv", ",,P-2,2027-01-15T08:00:00.000Z,spo2_pct low\r\n"},
	} {
		if _, text := get(t, srv, tt.path); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s, want %s", tt.path, text, tt.want)
		}
	}
	_, text := post(t, srv, "/v1/subjects/latest", `{"subject":"P-1"}`)
	const own = `{"subject":"P-1","ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"},` +
		`"critical":{"max":75,"of":"subject"}}},`
	if !strings.HasPrefix(text, own) {
		t.Errorf("ranges of a subject: %s", text)
	}
}

// TestLabels checks that lists have labels and groups, that match and group select devices in every order, on pages of
// any length and in counts, and that a token for some devices sees nothing of what others are called.
func TestLabels(t *testing.T) {
	k := newKeyring(t)
	var file strings.Builder
	for _, d := range [][3]string{
		{"ppg-1", "Bed 12", "ward 3"}, {"ppg-2", "Bed 2", "ward 3"}, {"icu-1", "Bed 1", "ICU"}, {"gone-1", "Bed 9", "ward 9"},
	} {
		fmt.Fprintf(&file, "[[device]]\ndevice = %q\nlabel = %q\ngroup = %q\n", d[0], d[1], d[2])
	}
	book := openRoster(t, file.String())
	reading := func(device string, values string) string {
		return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, fleetNow.UnixMilli(), values)
	}
	store := fill(t, reading("icu-1", `"spo2_pct":55`), reading("other", `"spo2_pct":50`),
		reading("ppg-1", `"spo2_pct":97`), reading("ppg-2", `"spo2_pct":80`))
	srv := serveWorst(t, store, nil, query.Options{
		Service: query.Service{Gate: k.gate, Roster: book}, Now: func() time.Time { return fleetNow },
	})
	for _, tt := range []struct{ auth, query, want string }{
		{k.all, "", "icu-1 other ppg-1 ppg-2"},
		{k.all, "match=bed+1", "icu-1 ppg-1"},
		{k.all, "match=BED+1&sort=worst", "icu-1 ppg-1"},
		{k.all, "match=PG-", "ppg-1 ppg-2"},
		{k.all, "group=ward+3&sort=worst", "ppg-2 ppg-1"},
		{k.all, "group=ward+3&sort=age", "ppg-1 ppg-2"},
		{k.all, "group=ward+3&match=2&sort=worst", "ppg-2 ppg-1"},
		{k.all, "group=ward+3&match=d+2", "ppg-2"},
		{k.all, "group=ward+3&state=flagged", "ppg-2"},
		{k.all, "group=ward+9", ""},
		{k.all, "group=none", ""},
		{k.all, "match=&group=", "icu-1 other ppg-1 ppg-2"},
		{k.ppg, "match=bed", "ppg-1 ppg-2"},
		{k.ppg, "group=ICU", ""},
		{k.ppg, "match=bed&sort=worst", "ppg-2 ppg-1"},
	} {
		for _, limit := range []int{1, 2, 100} {
			got := strings.Join(listed(t, srv, fmt.Sprintf("%s&limit=%d", tt.query, limit), "Authorization", tt.auth), " ")
			if got != tt.want {
				t.Errorf("%s, limit %d: %q, want %q", tt.query, limit, got, tt.want)
			}
		}
	}
	for _, tt := range []struct{ auth, query, want string }{
		{k.all, "match=bed&counts=true&sort=worst",
			`"counts":{"devices":3,"fresh":3,"stale":0,"flagged":2},"groups":["ICU","ward 3","ward 9"]`},
		{k.all, "group=ward+3&counts=true&state=flagged", `"counts":{"devices":2,"fresh":2,"stale":0,"flagged":1}`},
		{k.ppg, "counts=true", `"counts":{"devices":2,"fresh":2,"stale":0,"flagged":1},"groups":["ward 3"]`},
		{k.ppg, "", `{"device":"ppg-1","label":"Bed 12","group":"ward 3","time":`},
		{k.all, "match=" + strings.Repeat("%C3%A4", roster.MaxText+1),
			`"field":"match","reason":"not at most 64 characters"`},
		{k.all, "group=%ff", `"field":"group","reason":"not at most 64 characters"`},
	} {
		_, text := get(t, srv, "/v1/devices?"+tt.query, "Authorization", tt.auth)
		if !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s, want %s", tt.query, text, tt.want)
		}
		for _, other := range []string{"ICU", `Bed 1"`, "ward 9"} {
			if tt.auth == k.ppg && strings.Contains(text, other) {
				t.Errorf("%s: a token for ppg- sees labels of other devices: %s", tt.query, text)
			}
		}
	}
	const ppg2 = `{"device":"ppg-2","label":"Bed 2","group":"ward 3",`
	if _, text := get(t, srv, "/v1/devices/ppg-2", "Authorization", k.ppg); !strings.Contains(text, ppg2) {
		t.Errorf("a device: %s", text)
	}
	if resp, text := get(t, srv, "/v1/devices/icu-1", "Authorization", k.ppg); resp.StatusCode != 403 ||
		strings.Contains(text, "Bed") {
		t.Errorf("another device: %d %s", resp.StatusCode, text)
	}
	_, text := get(t, srv, "/v1/devices?match=bed&limit=1", "Authorization", k.all)
	cursor := text[strings.Index(text, `next_cursor":"`)+len(`next_cursor":"`):]
	cursor = cursor[:strings.Index(cursor, `"`)]
	for _, other := range []string{"match=be", "match=bed&group=ICU", "prefix=bed"} {
		resp, text := get(t, srv, "/v1/devices?limit=1&"+other+"&cursor="+cursor, "Authorization", k.all)
		if resp.StatusCode != 400 {
			t.Errorf("a cursor of match=bed with %s: %d %s", other, resp.StatusCode, text)
		}
	}
}
