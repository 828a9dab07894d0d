package ingest_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// An awaiting is an Input that waits for a store while it decodes.
type awaiting struct{ begun, end chan struct{} }

func (w awaiting) Decode(_ []byte, in *ingest.Intake) error {
	return in.Await(func() error {
		w.begun <- struct{}{}
		<-w.end
		return nil
	})
}

// Large messages that wait for a store do not keep others from being decoded, if there is memory for them. Otherwise
// they wait in their places.
func TestAwait(t *testing.T) {
	core, err := ingest.New(storetest.NewMemory(), problem.New(), ingest.Config{MaxBodyBytes: 4 << 20})
	try(t, err)
	defer core.Close(context.Background())
	w := awaiting{make(chan struct{}), make(chan struct{})}
	message := bytes.Repeat([]byte(" "), 100<<10)
	const senders = 5
	done := make(chan struct{}, senders)
	for range senders {
		go core.Receive(context.Background(), &ingest.Delivery{Input: w, Message: message},
			func(*ingest.Outcome) { done <- struct{}{} })
		<-w.begun // also the third one, of which there are two places
	}
	answered := false
	core.Receive(context.Background(), &ingest.Delivery{Message: message},
		func(o *ingest.Outcome) { _, answered = o.Refusal() })
	if !answered {
		t.Error("a message that is not valid is not rejected")
	}
	close(w.end)
	for range senders {
		<-done
	}
	if !core.Memory().Reserve(nil, 4<<20) {
		t.Error("memory is not released")
	}
}
