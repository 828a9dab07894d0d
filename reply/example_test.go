package reply_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// The answers are prepared once, and the handler only chooses between them.
func Example() {
	var (
		stored  = reply.JSON(200, map[string]string{"status": "stored"})
		busy    = reply.NewProblem(503, "https://pulsegate.example/problems/overload", "Overloaded").Answer("", nil)
		invalid = reply.NewProblem(422, "https://pulsegate.example/invalid", "Invalid")
	)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("load") {
		case "high":
			busy.WriteRetryAfter(w, r, 2*time.Second)
		case "odd":
			invalid.Write(w, r, "too high",
				reply.String("field", "spo2_pct"))
		default:
			stored.ServeHTTP(w, r)
		}
	})
	for _, url := range []string{"/", "/?load=high", "/?load=odd"} {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest("POST", url, nil))
		fmt.Printf("%d, retry after %q\n", rec.Code, rec.Header().Get("Retry-After"))
		fmt.Print(rec.Body)
	}
	// Output:
	// 200, retry after ""
	// {"status":"stored"}
	// 503, retry after "2"
	// {"type":"https://pulsegate.example/problems/overload","title":"Overloaded","status":503}
	// 422, retry after ""
	// {"type":"https://pulsegate.example/invalid","title":"Invalid","status":422,"detail":"too high","field":"spo2_pct"}
}

// A server that writes to its connections directly appends several answers to one
// buffer and sends them with one system call.
func ExampleAnswer_AppendHTTP1() {
	stored := reply.JSON(200, map[string]string{"status": "stored"})
	clock := reply.NewClock(func() time.Time { return time.Unix(784111777, 0) })

	date := clock.AppendDate(nil) // once for all answers of one wake-up
	var out []byte
	for range 2 {
		out = stored.AppendHTTP1(out, reply.HTTP1{Date: date})
	}
	fmt.Println(len(out), "bytes")
	// Output: 322 bytes
}
