package live_test

import (
	"fmt"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// BenchmarkPublish measures what a commit of 16 readings pays while nobody listens.
func BenchmarkPublish(b *testing.B) {
	group := make([]*storage.Entry, 16)
	for i := range group {
		group[i] = entry(fmt.Sprint("d-", i), 1, vitals.HeartRate, 6000)
		group[i].Outcome = storage.Stored
	}
	hub := live.New(storetest.NewMemory(), live.Options{Service: query.Service{Problems: problem.New()}})
	defer hub.Close()
	b.ReportAllocs()
	for b.Loop() {
		hub.Publish(group)
	}
}
