package mqtt_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
)

// TestTraces checks that each publication is a span, with its status and phases, and that no other packet is.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	var spans []string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var export struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						Name       string
						Attributes []struct {
							Key   string
							Value struct{ IntValue string }
						}
					}
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&export); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, one := range export.ResourceSpans {
			for _, scope := range one.ScopeSpans {
				for _, span := range scope.Spans {
					for _, a := range span.Attributes {
						if a.Key == "http.response.status_code" {
							span.Name += " " + a.Value.IntValue
						}
					}
					spans = append(spans, span.Name)
				}
			}
		}
	}))
	defer collector.Close()
	endpoint, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.New(tracing.Options{Endpoint: endpoint, Sample: 1})
	var cfg config
	cfg.ingest.Trace = tracer
	s := start(t, lane{loop: true}, cfg)
	c := s.connect(t, 5)
	c.send(publish(5, 1, 1, "pulsegate/a", reading(1)))
	c.next()
	c.send(publish(5, 1, 2, "pulsegate/a", "{"), packet(0xc0, ""))
	c.next()
	c.next()
	c.send(packet(0xe0, ""))
	s.stop(t)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"PUBLISH mqtt 200", "decode", "queue", "commit", "PUBLISH mqtt 422"}; !slices.Equal(spans, want) {
		t.Errorf("got the spans %q, want %q", spans, want)
	}
}
