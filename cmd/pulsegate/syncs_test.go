package main_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Concurrent readings share syncs: 64 clients, each waiting for its answers, need far fewer syncs
// than requests.
func TestSyncsAreShared(t *testing.T) {
	const clients, posts = 64, 50
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--admin-addr=127.0.0.1:0")
	before := metric(t, p, "pulsegate_store_syncs_total")
	// The load is a separate process: with the race detector this one would be too slow for 64
	// concurrent requests.
	out, errs, code := output(t, program(t), "sim", "run", "--target", p.url(""), "--users", strconv.Itoa(clients), "--posts", strconv.Itoa(posts))
	if code != 0 || !strings.Contains(out, fmt.Sprintf("stored=%d ", clients*posts)) {
		t.Fatalf("sim: exit code %d\n%s%s", code, out, errs)
	}
	requests := metric(t, p, `pulsegate_http_requests_total{code="2xx",route="/v1/readings"}`)
	if requests != clients*posts {
		t.Errorf("%d requests were counted, want %d", requests, clients*posts)
	}
	syncs := metric(t, p, "pulsegate_store_syncs_total") - before
	if most := clients * posts / 4; syncs < 1 || syncs > most {
		t.Errorf("%d requests took %d syncs, want 1 to %d", clients*posts, syncs, most)
	}
	t.Logf("%d requests, %d syncs", requests, syncs)
}
