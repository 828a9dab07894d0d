// Client sends readings to Pulsegate, and reads them.
//
//	go run client.go URL send < readings.json     one reading, an array of readings, or NDJSON
//	go run client.go URL readings DEVICE
//	go run client.go URL live PREFIX
//
// PULSEGATE_TOKEN has the token, if the server needs one.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// call repeats a request until the answer is final. Sending readings again is safe.
func call(method, target string, body []byte, lastID string) *http.Response {
	for backoff := time.Second; ; backoff = min(2*backoff, time.Minute) {
		r, err := http.NewRequest(method, os.Args[1]+target, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		if token := os.Getenv("PULSEGATE_TOKEN"); token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if lastID != "" {
			r.Header.Set("Last-Event-ID", lastID)
		}
		pause := backoff/2 + rand.N(backoff/2) // after 408, 500, or no answer
		answer, err := http.DefaultClient.Do(r)
		switch {
		case err != nil:
			log.Print(err)
		case answer.StatusCode == 429 || answer.StatusCode == 503:
			seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
			pause = time.Duration(max(seconds, 1)) * time.Second
			answer.Body.Close()
		case answer.StatusCode == 408 || answer.StatusCode == 500:
			answer.Body.Close()
		default:
			return answer
		}
		time.Sleep(pause)
	}
}

// decode decodes an answer, and exits unless its status is one of those.
func decode(answer *http.Response, to any, statuses string) {
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(statuses, strconv.Itoa(answer.StatusCode)) {
		log.Fatalf("%s: %s %v", answer.Status, text, err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		log.Fatal(err)
	}
}

func main() {
	switch os.Args[2] {
	case "send":
		body, err := io.ReadAll(os.Stdin)
		if err != nil {
			log.Fatal(err)
		}
		var result struct {
			Stored, Duplicate int
			Status            any // of a problem it is a number
			Field, Reason     string
			Rejected          []struct {
				Index         int
				Field, Reason string
			}
		}
		answer := call("POST", "/v1/readings", body, "")
		decode(answer, &result, "200 207 409")
		switch {
		case answer.StatusCode == 409: // another value is stored: sending this one again is useless
			fmt.Println("conflict:", result.Field, result.Reason)
			os.Exit(1)
		case result.Status != nil:
			fmt.Println(result.Status)
		default:
			fmt.Printf("stored %d, duplicate %d\n", result.Stored, result.Duplicate)
		}
		for _, r := range result.Rejected { // 207: the others are stored
			fmt.Printf("rejected %d: %s %s\n", r.Index, r.Field, r.Reason)
		}
	case "readings":
		for query := (url.Values{"limit": {"100"}}); ; {
			var page struct {
				Readings   []json.RawMessage
				NextCursor string `json:"next_cursor"`
			}
			decode(call("GET", "/v1/devices/"+os.Args[3]+"/readings?"+query.Encode(), nil, ""), &page, "200")
			for _, reading := range page.Readings {
				fmt.Printf("%s\n", reading)
			}
			if page.NextCursor == "" {
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	case "live":
		for last := ""; ; { // a stream that ended is resumed with the id of the last event
			stream := call("GET", "/v1/live?"+url.Values{"prefix": {os.Args[3]}}.Encode(), nil, last)
			if stream.StatusCode != 200 {
				decode(stream, nil, "200")
			}
			event := ""
			for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
				switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
				case "event":
					event = value
				case "id":
					last = value
				case "data":
					if event != "time" {
						fmt.Println(value)
					}
				}
			}
			stream.Body.Close()
			time.Sleep(time.Second + rand.N(4*time.Second))
		}
	}
}
