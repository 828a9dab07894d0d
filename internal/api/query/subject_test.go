package query_test

import (
	"bytes"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// wardDevice returns a server with a device that P-102 wore from second 1 to 2.5, nobody to 4, and P-200 since then,
// and another one that nobody ever wore. The clock shows second 10.
func wardDevice(t *testing.T) (*storetest.Memory, *httptest.Server) {
	t.Helper()
	store := fill(t,
		`{"device":"ward-2","time":500,"heart_rate_bpm":50}`,
		`{"device":"ward-2","time":1000,"heart_rate_bpm":60,"spo2_pct":97}`,
		`{"device":"ward-2","time":2000,"heart_rate_bpm":62,"gateway":"g"}`,
		`{"device":"ward-2","time":2500,"body_temperature_c":37}`,
		`{"device":"ward-2","time":3000,"heart_rate_bpm":64,"gateway":"g"}`,
		`{"device":"ward-2","time":4000,"heart_rate_bpm":66,"gateway":"g"}`,
		`{"device":"x","time":4000,"heart_rate_bpm":70}`,
	)
	assign(t, store, "P-102", 1000, 2500)
	assign(t, store, "P-200", 4000, storage.OpenEnd)
	return store, serveOptions(t, store, query.Options{
		Service: query.Service{Subjects: store}, Now: func() time.Time { return time.UnixMilli(10_000) },
	}, unchanged)
}

func assign(t *testing.T, store *storetest.Memory, subject storage.Subject, from, to int64) {
	t.Helper()
	assignTo(t, store, "ward-2", subject, from, to)
}

func assignTo(t *testing.T, store *storetest.Memory, name string, subject storage.Subject, from, to int64) {
	t.Helper()
	device, err := vitals.ParseName(name)
	try(t, err, store.Assign(t.Context(), storage.Assignment{Device: device, Subject: subject, FromUnixMs: from,
		ToUnixMs: to}))
}

// A subject beside a value is the subject of the value's own time, in every answer and format. Whose the device is now
// stands apart, and no bucket has values of two subjects.
func TestSubjectOfTheTime(t *testing.T) {
	store, srv := wardDevice(t)
	want := func(path, want string) {
		t.Helper()
		_, got := get(t, srv, path)
		got = regexp.MustCompile(`"next_cursor":"[\w-]+"`).ReplaceAllString(got, `"next_cursor":"C"`)
		got = strings.ReplaceAll(strings.ReplaceAll(got, "1970-01-01T00:00:0", ""), `,"flags_notice":"`+vitals.FlagNotice+`"`,
			"")
		if got = strings.ReplaceAll(got, "2027-01-15T08:00:00.000Z", "R"); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
	const latest = `"latest":{"spo2_pct":{"value":97,"time":"1.000Z","subject":"P-102"},"heart_rate_bpm":{"value":66,` +
		`"time":"4.000Z","subject":"P-200"},` +
		`"body_temperature_c":{"value":37,"time":"2.500Z"}},"assigned_now":"P-200"`
	want("/v1/devices/ward-2", `{"device":"ward-2","time":"4.000Z",`+latest+`,"assigned_since":"4.000Z",`+
		`"assignments":[{"subject":"P-102","from":"1.000Z","to":"2.500Z"},{"subject":"P-200","from":"4.000Z"}]}`+"\n")
	const other = `{"device":"x","time":"4.000Z","latest":{"heart_rate_bpm":{"value":70,"time":"4.000Z"}}}`
	want("/v1/devices/x", other+"\n")
	want("/v1/devices", "{\"devices\":[\n{\"device\":\"ward-2\",\"time\":\"4.000Z\","+latest+"},\n"+other+"\n]}\n")
	want("/v1/devices?sort=age&limit=1",
		"{\"devices\":[\n{\"device\":\"ward-2\",\"time\":\"4.000Z\","+latest+"}\n],\"next_cursor\":\"C\"}\n")

	line := func(time, values, more string) string {
		return `{"device":"ward-2","time":"` + time + `Z",` + values + `,` + more + `"received":"R"}` + "\n"
	}
	lines := []string{
		line("0.500", `"heart_rate_bpm":50.0`, ``), line("1.000", `"spo2_pct":97.0,"heart_rate_bpm":60.0`,
			`"subject":"P-102",`),
		line("2.000", `"heart_rate_bpm":62.0`, `"gateway":"g","subject":"P-102",`),
		line("2.500", `"body_temperature_c":37.0`, ``),
		line("3.000", `"heart_rate_bpm":64.0`, `"gateway":"g",`),
		line("4.000", `"heart_rate_bpm":66.0`, `"gateway":"g","subject":"P-200",`),
	}
	want("/v1/devices/ward-2/readings?flags=false&format=ndjson", strings.Join(lines, ""))
	want("/v1/devices/ward-2/readings?flags=false&order=desc&from=3000&limit=1",
		"{\"readings\":[\n"+strings.Replace(strings.TrimSpace(lines[5]), "66.0", "66", 1)+"\n],\"next_cursor\":\"C\"}\n")
	want("/v1/devices/ward-2/readings?flags=false&format=csv&from=2000&to=2501",
		"device,time,utc_offset_minutes,systolic_mmhg,diastolic_mmhg,spo2_pct,heart_rate_bpm,resting_heart_rate_bpm,respira"+
			"tory_rate_bpm,body_temperature_c,"+
			"body_weight_kg,glucose_mg_dl,glucose_mmol_l,pulse_rate_bpm,interstitial_glucose_mg_dl,interstitial_glucose_mmol_l"+
			",gateway,subject,received\r\n"+
			"ward-2,2.000Z,,,,,62.0,,,,,,,,,,g,P-102,R\r\nward-2,2.500Z,,,,,,,,37.0,,,,,,,,,R\r\n")

	// Buckets of 2 s: 0 to 2, 2 to 4, 4 to 6.
	const heads = "device,from,to,subject,sign,count,min,max,mean,first_time,first,last_time,last\r\n"
	rows := []string{
		"ward-2,0Z,1Z,,heart_rate_bpm,1,50.0,50.0,50.0,0.500Z,50.0,0.500Z,50.0\r\n",
		"ward-2,1Z,2Z,P-102,spo2_pct,1,97.0,97.0,97.0,1.000Z,97.0,1.000Z,97.0\r\n" +
			"ward-2,1Z,2Z,P-102,heart_rate_bpm,1,60.0,60.0,60.0,1.000Z,60.0,1.000Z,60.0\r\n",
		"ward-2,2Z,2.500Z,P-102,heart_rate_bpm,1,62.0,62.0,62.0,2.000Z,62.0,2.000Z,62.0\r\n",
		"ward-2,2.500Z,4Z,,heart_rate_bpm,1,64.0,64.0,64.0,3.000Z,64.0,3.000Z,64.0\r\n" +
			"ward-2,2.500Z,4Z,,body_temperature_c,1,37.0,37.0,37.0,2.500Z,37.0,2.500Z,37.0\r\n",
		"ward-2,4Z,6Z,P-200,heart_rate_bpm,1,66.0,66.0,66.0,4.000Z,66.0,4.000Z,66.0\r\n",
	}
	want("/v1/devices/ward-2/aggregates?step=2s&format=csv", heads+strings.Join(rows, ""))
	want("/v1/devices/ward-2/aggregates?step=2s&from=4000", `{"device":"ward-2","step":"2s","tz":"UTC","buckets":[`+"\n"+
		`{"from":"4Z","to":"6Z","subject":"P-200","signs":{"heart_rate_bpm":{"count":1,"min":66,"max":66,"mean":66,`+
		`"first":{"time":"4.000Z","value":66},"last":{"time":"4.000Z","value":66}}}}`+"\n]}\n")
	paged := ""
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ { // a page may end where a bucket is divided
		if cursor != "" {
			cursor = "&cursor=" + cursor
		}
		resp, text := get(t, srv, "/v1/devices/ward-2/aggregates?step=2s&format=csv&limit=1"+cursor)
		paged += strings.TrimPrefix(strings.ReplaceAll(text, "1970-01-01T00:00:0", ""), heads)
		cursor = resp.Trailer.Get("Pulsegate-Next-Cursor")
		if n > len(rows) {
			t.Fatal("the pages have no end")
		}
	}
	if paged != strings.Join(rows, "") {
		t.Errorf("page by page:\n%s", paged)
	}

	_, file := get(t, srv, "/v1/devices/ward-2/readings?format=parquet")
	var subjects []string
	for r := parquet.NewGenericReader[struct {
		Subject string `parquet:"subject,optional"`
	}](bytes.NewReader([]byte(file))); ; {
		var row [1]struct {
			Subject string `parquet:"subject,optional"`
		}
		n, err := r.Read(row[:])
		for range n {
			subjects = append(subjects, row[0].Subject)
		}
		if err == io.EOF {
			break
		}
		try(t, err)
	}
	if got := strings.Join(subjects, "|"); got != "|P-102|P-102|||P-200" {
		t.Errorf("Parquet: the subjects are %s", got)
	}

	// The assignment ends: the device is nobody's now, and the values stay whose they were.
	device, err := vitals.ParseName("ward-2")
	try(t, err, store.EndAssignment(t.Context(), storage.Assignment{Device: device, Subject: "P-200", FromUnixMs: 4000,
		ToUnixMs: 5000}))
	want("/v1/devices/ward-2", `{"device":"ward-2","time":"4.000Z",`+strings.TrimSuffix(latest,
		`,"assigned_now":"P-200"`)+`,"assigned_since":"5.000Z",`+
		`"assignments":[{"subject":"P-102","from":"1.000Z","to":"2.500Z"},{"subject":"P-200","from":"4.000Z",`+
		`"to":"5.000Z"}]}`+"\n")
}
