package main_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/vitals"
)

// pulsegate rejections shows what a server lists; testdata/script/rejections.txtar has servers that list
// nothing.
func TestRejections(t *testing.T) {
	device, err := vitals.ParseName("ppg-1")
	try(t, err)
	l := rejections.New(2)
	l.Add(rejections.Rejection{})
	l.Add(rejections.Rejection{UnixMs: 1000, Input: "mqtt", Reason: "not a topic\x1b[2J"})
	l.Add(rejections.Rejection{UnixMs: 2001, Input: "mqtt", Gateway: device, Device: device, Field: "spo2_pct",
		Reason: "no signal"})
	routes := http.NewServeMux()
	routes.Handle(rejections.Path, rejections.NewHandler(l, query.Service{Problems: problem.New()}))
	routes.HandleFunc("/other"+rejections.Path, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{}"))
	})
	srv := httptest.NewServer(routes)
	defer srv.Close()
	for _, tt := range []struct {
		args             []string
		code             int
		wantOut, wantErr string // regular expressions
	}{
		{nil, 0, `^TIME +INPUT +GATEWAY +DEVICE +FIELD +REASON
1970-01-01T00:00:02.001Z +mqtt +ppg-1 +ppg-1 +spo2_pct +no signal
1970-01-01T00:00:01.000Z +mqtt +- +- +- +not a topic[^\x1b]*\n$`, "^3 since the server started.\n$"},
		{[]string{"--limit=1", "--json"}, 0,
			`^\{"time":"1970-01-01T00:00:02.001Z","input":"mqtt","gateway":"ppg-1","device":"ppg-1","field":"spo2_pct",` +
				`"reason":"no signal"\}\n$`, "^$"},
		{[]string{"--device=ppg-1"}, 0, `^TIME.*\n.*no signal\n$`, "."},
		{[]string{"--device=ppg-2"}, 0, "^$", "no rejection"},
		{[]string{"--target=" + srv.URL + "/other"}, 1, "^$", "list rejections: .*does not respond like Pulsegate"},
	} {
		out, errs, code := output(t, program(t), append([]string{"rejections", "--target=" + srv.URL}, tt.args...)...)
		if code != tt.code || !regexp.MustCompile(tt.wantOut).MatchString(out) ||
			!regexp.MustCompile(tt.wantErr).MatchString(errs) {
			t.Errorf("%q: exit code %d\n%s\n%s\nwant %d\n%s\n%s", tt.args, code, out, errs, tt.code, tt.wantOut, tt.wantErr)
		}
	}
}
