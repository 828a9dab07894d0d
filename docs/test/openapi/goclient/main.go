//go:build generated

// Command goclient sends a reading and reads it back, with the client that oapi-codegen generates
// into this package.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	_ "github.com/oapi-codegen/runtime" // the generated code imports it
)

func main() {
	address, device, text := os.Args[1], os.Args[2], os.Args[3]
	client, err := NewClientWithResponses(address, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("PULSEGATE_TOKEN"))
		return nil
	}))
	must(err)
	at, err := time.Parse(time.RFC3339, text)
	must(err)
	value := 62.5
	reading := NewReading{Device: device, HeartRateBpm: &value}
	must(reading.Time.FromNewReadingTime0(at))
	var body SendReadingsJSONRequestBody
	must(body.FromNewReading(reading))
	sent, err := client.SendReadingsWithResponse(context.Background(), nil, body)
	must(err)
	outcome, err := sent.JSON200.AsOutcome()
	must(err)
	fmt.Println(outcome.Status)
	read, err := client.ListReadingsWithResponse(context.Background(), device, &ListReadingsParams{From: &text})
	must(err)
	page, err := read.JSON200.AsReadings()
	must(err)
	for _, r := range page.Readings {
		fmt.Println(r.Device, r.Time.Format(time.RFC3339), *r.HeartRateBpm)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
