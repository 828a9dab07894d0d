package profile_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

const metricsText = `# HELP pulsegate_build_info Always 1.
# TYPE pulsegate_build_info gauge
pulsegate_build_info{goversion="go1.26.8",version="1.2.3"} 1
# TYPE pulsegate_http_requests_total counter
pulsegate_http_requests_total{code="2xx",route="POST /v1/readings"} 1234
pulsegate_http_requests_total{code="4xx",route="POST /v1/readings"} 5
pulsegate_http_requests_total{code="2xx",route="/livez"} 1e+06
# TYPE pulsegate_mqtt_publications_total counter
pulsegate_mqtt_publications_total{qos="0"} 7
pulsegate_mqtt_publications_total{qos="1"} 8
# TYPE pulsegate_mllp_acknowledgements_total counter
pulsegate_mllp_acknowledgements_total{code="AA"} 9
# TYPE pulsegate_readings_total counter
pulsegate_readings_total{outcome="stored"} 1200
pulsegate_readings_total{outcome="duplicate"} 34
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE go_memstats_alloc_bytes_total counter
go_memstats_alloc_bytes_total 4.5e+06
# TYPE go_memstats_mallocs_total counter
go_memstats_mallocs_total 12000
`

func TestReadCounters(t *testing.T) {
	got, err := pg.ReadCounters(strings.NewReader(metricsText))
	try(t, err)
	if got.Version != "1.2.3" || got.GoVersion != "go1.26.8" || got.CPU != 12.5 || got.Started != 1.7e9 ||
		got.Bytes != 4.5e6 || got.Objects != 12000 {
		t.Errorf("got %+v", got)
	}
	want := map[string]uint64{"POST /v1/readings 2xx": 1234, "POST /v1/readings 4xx": 5, "/livez 2xx": 1000000,
		"MQTT QoS 0": 7, "MQTT QoS 1": 8, "MLLP AA": 9}
	if !maps.Equal(got.Requests, want) {
		t.Errorf("requests: got %v, want %v", got.Requests, want)
	}
	if want := map[string]uint64{"stored": 1200, "duplicate": 34}; !maps.Equal(got.Readings, want) {
		t.Errorf("readings: got %v, want %v", got.Readings, want)
	}
}

func TestReadCountersRejects(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"a web page":      "<!doctype html><html><title>Router</title>",
		"another program": "# TYPE up gauge\nup 1\n",
		"cut off":         strings.Replace(metricsText, `route="/livez"} 1e+06`, `route="/liv`, 1)[:330],
		"no requests":     "pulsegate_build_info 1\n",
	} {
		_, err := pg.ReadCounters(strings.NewReader(text))
		if !errors.Is(err, pg.ErrNotPulsegate) {
			t.Errorf("%s: got error %v, want ErrNotPulsegate", name, err)
		}
	}
}
