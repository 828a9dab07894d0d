package ingest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestDecodeWhileCommitting checks that while a group is being committed, batches of every form
// are decompressed, decoded and admitted, up to the bound on the queue, and further ones
// rejected immediately. The next group must hold all of them. (Seen to fail when decoding waited
// for the commit: the queue then did not fill.)
func TestDecodeWhileCommitting(t *testing.T) { eachFront(t, testDecodeWhileCommitting) }

func testDecodeWhileCommitting(t *testing.T, serve serveFunc) {
	const readings = 20
	forms := []struct{ encoding, between string }{{"", ","}, {"gzip", ","}, {"zstd", ","}, {"", "\n"}, {"gzip", "\n"},
		{"zstd", "\n"}}
	groups, release := make(chan int, 100), make(chan struct{})
	core, srv := serve(t, ingest.Config{MaxQueued: 1 + len(forms)*readings}, func(group []*storage.Entry) error {
		groups <- len(group)
		<-release
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, text := post(t, srv, good, ""); text != `{"status":"stored"}` {
			t.Errorf("the first reading: %s", text)
		}
	})
	if n := <-groups; n != 1 {
		t.Fatalf("the first group has %d readings, want 1", n)
	}
	for i, form := range forms {
		body := batch(fmt.Sprint("d", i), readings)
		if form.between == "\n" {
			body = strings.ReplaceAll(strings.Trim(body, "[]"), "},{", "}\n{")
		}
		if form.encoding != "" {
			body = compress(t, form.encoding, body)
		}
		wg.Go(func() {
			if _, text := post(t, srv, body, form.encoding); text != fmt.Sprintf(`{"stored":%d,"duplicate":0}`, readings) {
				t.Errorf("%q %q: %s", form.between, form.encoding, text)
			}
		})
	}
	polltest.Until(t, "all batches are admitted",
		func() bool { return core.Commits().QueuedItems >= 1+len(forms)*readings })
	if resp, text := post(t, srv, compress(t, "gzip", batch("late", readings)), "gzip"); resp.StatusCode != 503 ||
		!strings.Contains(text, "#overloaded") {
		t.Errorf("beyond the bound: %d %s, want 503 overloaded", resp.StatusCode, text)
	}
	if got := core.Commits(); got.Groups != 0 {
		t.Errorf("%d groups were committed meanwhile", got.Groups)
	}
	close(release)
	wg.Wait()
	if n := <-groups; n != len(forms)*readings {
		t.Errorf("the second group has %d readings, want all %d", n, len(forms)*readings)
	}
}
