package reply_test

import (
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// Serving does not allocate in steady state, measured with a writer that does not
// allocate.
func TestNoAllocations(t *testing.T) {
	d := newDiscard()
	plain := reply.JSON(200, map[string]string{"status": "stored"})
	lean := reply.New(200, "application/json", []byte(`{}`), reply.NoStore(), reply.Lean())
	busy := reply.New(503, "text/plain", []byte("later"))
	head := reply.NewHead(200, "application/json")
	problem := reply.NewProblem(422, "https://pulsegate.example/problems/invalid", "Invalid reading")
	clock := reply.NewClock(func() time.Time { return time.Unix(1e9, 0) })

	getPlain, headPlain := get(), request("HEAD")
	body := make([]byte, reply.SmallInts-1)
	buf := make([]byte, 0, 8<<10)
	message := reply.HTTP1{Date: []byte("Sun, 06 Nov 1994 08:49:37 GMT"), Connection: "close", RetryAfter: time.Second}
	field, n := "spo2_pct", 41

	for what, f := range map[string]func(){
		"Answer":               func() { plain.ServeHTTP(d, getPlain) },
		"Answer, HEAD":         func() { plain.ServeHTTP(d, headPlain) },
		"Answer, lean":         func() { lean.ServeHTTP(d, getPlain) },
		"Answer, stale fields": func() { d.header["Etag"] = nil; plain.ServeHTTP(d, getPlain) },
		"Answer.WriteRetry":    func() { busy.WriteRetryAfter(d, getPlain, time.Minute) },
		"Answer.AppendHTTP1":   func() { buf = busy.AppendHTTP1(buf[:0], message) },
		"Head.Write":           func() { head.Write(d, getPlain, body) },
		"Head.WriteRetry":      func() { head.WriteRetryAfter(d, getPlain, time.Hour, body) },
		"Head.Begin":           func() { head.Begin(d) },
		"Head.AppendHTTP1":     func() { buf = head.AppendHTTP1(buf[:0], message, body) },
		"Problem.Write":        func() { problem.Write(d, getPlain, "above 100 %", reply.String("field", field)) },
		"Problem.WriteRetry":   func() { problem.WriteRetryAfter(d, getPlain, time.Second, "busy") },
		"AppendProblem": func() {
			buf = reply.AppendProblem(buf[:0], problem, "d\n\xff", reply.String("field", field))
		},
		"IntValue":         func() { d.header["Content-Length"] = reply.IntValue(n) },
		"Clock.AppendDate": func() { buf = clock.AppendDate(buf[:0]) },
		"AppendJSONString": func() { buf = reply.AppendJSONString(buf[:0], "a\"\xff\u2028") },
	} {
		clear(d.header)
		wantNoAllocs(t, what, f)
	}
}
