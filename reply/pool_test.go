package reply_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// Without the server's own writer the fields stay in the header, for as long as
// anybody looks at them.
func TestPoolKeepsFieldsForOthers(t *testing.T) {
	var pool reply.Pool
	var recs []*httptest.ResponseRecorder
	for i := range 100 {
		rec := httptest.NewRecorder()
		pool.WriteHeader(rec, 201, reply.Field{Key: "Location", Value: "/" + strconv.Itoa(i)})
		recs = append(recs, rec)
	}
	for i, rec := range recs {
		if got, want := rec.Header().Get("Location"), "/"+strconv.Itoa(i); rec.Code != 201 || got != want {
			t.Errorf("recorder %d: status %d, Location = %q, want %q", i, rec.Code, got, want)
		}
	}
}

// Where slices are used again, they have been taken out of the header before.
func TestPoolTakesFieldsOut(t *testing.T) {
	d := newDiscard()
	pool := reply.Trusting(d)
	d.header.Set("X-Request-Id", "7")
	fields := make([]reply.Field, 12)
	for i := range fields {
		fields[i] = reply.Field{Key: "X-" + strconv.Itoa(i), Value: strconv.Itoa(i)}
	}
	pool.WriteHeader(d, 200, fields...)
	for i := range fields {
		// The first eight are the pool's; the others belong to the header alone.
		got := d.header["X-"+strconv.Itoa(i)]
		if i < 8 && got != nil || i >= 8 && (len(got) != 1 || got[0] != strconv.Itoa(i)) {
			t.Errorf("field %d = %q", i, got)
		}
	}
	if got := d.header.Get("X-Request-Id"); got != "7" || d.status != 200 {
		t.Errorf("X-Request-Id = %q and status %d, want 7 and 200", got, d.status)
	}
}

// Under the race detector: many requests at a time, by both protocols, through
// the writers that a service meets. Each client gets its own Location.
func TestPoolConcurrent(t *testing.T) {
	const clients, requests = 8, 40
	var pool reply.Pool
	created := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		pool.WriteHeader(w, 201,
			reply.Field{Key: "Location", Value: "/v1/things/" + id},
			reply.Field{Key: "X-Id", Value: id + id})
		io.WriteString(w, id)
	})
	for name, h := range map[string]http.Handler{
		"bare": created,
		// A layer that looks at the header when the response is written.
		"observed": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			created.ServeHTTP(w, r)
			_ = w.Header().Get("Location") + w.Header().Get("X-Id")
		}),
		"wrapped":   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { created.ServeHTTP(forwarder{w}, r) }),
		"unknown":   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { created.ServeHTTP(struct{ http.ResponseWriter }{w}, r) }),
		"timeouted": http.TimeoutHandler(created, time.Minute, ""),
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
				c, url := server(h.ServeHTTP)
				var wg sync.WaitGroup
				for g := range clients {
					wg.Go(func() {
						for i := range requests {
							id := fmt.Sprintf("%d-%d", g, i)
							if err := fetchThing(c, url, id); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

func fetchThing(c *http.Client, url, id string) error {
	res, err := c.Get(url + "?id=" + id)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if got, want := res.Header.Get("Location"), "/v1/things/"+id; got != want {
		return fmt.Errorf("Location = %q, want %q", got, want)
	}
	if got := res.Header.Get("X-Id"); got != id+id || string(body) != id || res.StatusCode != 201 {
		return fmt.Errorf("status %d, X-Id = %q and body = %q for %q", res.StatusCode, got, body, id)
	}
	return nil
}

// A handler that TimeoutHandler has given up still uses the pool while the next
// requests are answered. Its slices are not theirs.
func TestPoolAfterTimeout(t *testing.T) {
	var pool reply.Pool
	release := make(chan struct{})
	var late sync.WaitGroup
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		late.Add(1)
		defer late.Done()
		<-release
		for range 200 {
			pool.WriteHeader(w, 200, reply.Field{Key: "Location", Value: "too late"})
		}
	})
	c, url := func() (*http.Client, string) {
		mux := http.NewServeMux()
		mux.Handle("/slow", http.TimeoutHandler(slow, time.Millisecond, "slow"))
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			pool.WriteHeader(w, 200, reply.Field{Key: "Location", Value: r.URL.Path})
		})
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		return srv.Client(), srv.URL
	}()
	if res := fetch(t, c, url+"/slow"); res.StatusCode != 503 {
		t.Fatalf("status = %d, want 503", res.StatusCode)
	}
	close(release)
	for i := range 100 {
		path := "/" + strings.Repeat("p", i+1)
		if got := fetch(t, c, url+path).Header.Get("Location"); got != path {
			t.Errorf("Location = %q, want %q", got, path)
		}
	}
	late.Wait()
}

// Under the race detector: one answer, served to many at a time while other
// layers add to its header.
func TestAnswerConcurrent(t *testing.T) {
	a := reply.New(200, "text/plain", []byte(strings.Repeat("x", 500)), reply.Gzip(), reply.CacheControl("no-cache"), reply.Vary("Origin"))
	protocols(t, func(t *testing.T, server func(http.HandlerFunc) (*http.Client, string)) {
		c, url := server(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("vary") {
				w.Header().Add("Vary", "Cookie")
			}
			a.ServeHTTP(w, r)
			w.Header().Add("Vary", "Too-Late")
			w.Header().Add("Etag", "too late")
			w.Header().Set("Content-Type", "too late")
		})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				want := "Origin, Accept-Encoding"
				query := ""
				if g%2 == 0 {
					want, query = "Cookie|Origin|Accept-Encoding", "?vary"
				}
				for range 30 {
					res, err := c.Get(url + query)
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil || len(body) != 500 {
						t.Errorf("%d bytes (%v), want 500", len(body), err)
						return
					}
					if got := strings.Join(res.Header["Vary"], "|"); got != want {
						t.Errorf("Vary = %q, want %q", got, want)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
