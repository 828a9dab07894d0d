package ingest_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// rulesFile returns the path of a file of rules.
func rulesFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules")
	const rules = "[[rule]]\nclaim = \"azp\"\nvalue = \"pulsegate\"\nrights = [\"write\"]\ngateway = \"bed-7\"\ndevices " +
		"= \"ppg-\"\n"
	try(t, os.WriteFile(path, []byte(rules), 0o600))
	return path
}

// newHouse returns a provider, and a gate with its tokens and one of a file, which may write.
func newHouse(t testing.TB) (house *oidctest.Provider, g *gate.Gate, static string) {
	t.Helper()
	files := gatetest.New(t)
	static = files.Token(t, "bed-7", "ppg-", token.Token{Rights: token.Write})
	house, g = oidctest.New(t), files.Open(t)
	g.OIDC, g.Audit = house.Open(rulesFile(t)), nil
	return house, g, static
}

// swap sends a request and returns the answer's status line and the header and body after it.
func swap(t *testing.T, conn *peer, text string) (status, rest string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(conn, answer, 100)
	try(t, err)
	status, rest, _ = strings.Cut(string(answer[:n]), "\r\n")
	return status, rest
}

// A connection stays in the fast lane while its JWT is verified on another goroutine, and when the JWT is renewed. The
// full lane answers those that are rejected, cannot be decided, or do not fit.
func TestLaneJWT(t *testing.T) {
	house, g, static := newHouse(t)
	srv := serveOn(t, settleAs(storage.Stored), ingest.Config{Gate: g, Now: time.Now}, &ingest.FastLaneConfig{})
	bearer := func(others oidctest.Object) string { return "Bearer " + house.Token(others) }
	renewed := 0
	fresh := func() string { renewed++; return bearer(oidctest.Object{"jti": renewed}) }
	stored := func(conn *peer, auth string) {
		t.Helper()
		if status, rest := swap(t, conn, authorized(good, auth)); status != "HTTP/1.1 200 OK" ||
			!strings.Contains(rest, `{"status":"stored"}`) {
			t.Fatalf("%s\n%s", status, rest)
		}
	}
	// stays tries with new connections until one has stayed in the lane: on a busy machine, a JWT is not always verified
	// as soon as the lane asks again.
	stays := func(what string, use func(conn *peer)) {
		t.Helper()
		polltest.Until(t, what, func() bool {
			before := srv.lane.Stats().Moved
			use(dial(t, srv))
			return srv.lane.Stats().Moved == before
		})
	}
	stays("a client that renews its token", func(conn *peer) {
		stored(conn, static)
		for range 3 {
			text := fresh()
			stored(conn, text)
			stored(conn, text)
		}
		stored(conn, bearer(oidctest.Object{"padding": strings.Repeat("x", 2000)}))
		stored(conn, static)
	})
	stays("a header that arrives before its body", func(conn *peer) {
		early := authorized(good, fresh())
		cut := strings.Index(early, "\r\n\r\n") + 4
		_, err := io.WriteString(conn, early[:cut])
		try(t, err)
		time.Sleep(20 * time.Millisecond)
		if status, rest := swap(t, conn, early[cut:]); status != "HTTP/1.1 200 OK" {
			t.Fatalf("%s\n%s", status, rest)
		}
	})
	stays("requests that are sent at once", func(conn *peer) {
		_, err := io.WriteString(conn, authorized(good, static)+authorized(good, fresh())+authorized(good, fresh()))
		try(t, err)
		answers, answer := "", make([]byte, 64<<10)
		for strings.Count(answers, "HTTP/1.1 200 OK") < 3 {
			n, err := conn.Read(answer)
			if err != nil {
				t.Fatalf("%v after %s", err, answers)
			}
			answers += string(answer[:n])
		}
	})
	stays("a JWT that no rule matches", func(conn *peer) {
		if status, rest := swap(t, conn, authorized(good, bearer(oidctest.Object{"azp": nil}))); status !=
			"HTTP/1.1 403 Forbidden" {
			t.Errorf("no rule: %s\n%s", status, rest)
		}
	})

	for _, tt := range []struct {
		name, auth, status, want string
	}{
		{"expired", bearer(oidctest.Object{"exp": 1}), "HTTP/1.1 401 Unauthorized", `error="invalid_token"`},
		{"other audience", bearer(oidctest.Object{"aud": "x"}), "HTTP/1.1 401 Unauthorized", "invalid-credentials"},
		{"larger than the lane takes", bearer(oidctest.Object{"padding": strings.Repeat("x", 4000)}), "HTTP/1.1 200 OK",
			`{"status":"stored"}`},
		{"largest", bearer(oidctest.Object{"padding": strings.Repeat("x", 5500)}), "HTTP/1.1 200 OK", `{"status":"stored"}`},
		{"too large", bearer(oidctest.Object{"padding": strings.Repeat("x", 6100)}), "HTTP/1.1 401 Unauthorized",
			"invalid-credentials"},
	} {
		before := srv.lane.Stats().Moved
		status, rest := swap(t, dial(t, srv), authorized(good, tt.auth))
		if status != tt.status || !strings.Contains(rest, tt.want) {
			t.Errorf("%s: %s\n%s", tt.name, status, rest)
		}
		if n := srv.lane.Stats().Moved - before; n != 1 {
			t.Errorf("%s: %d connections have left the lane, want 1", tt.name, n)
		}
	}

	// A provider that has never answered.
	nowhere := oidctest.New(t)
	broken := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true }
	nowhere.Answer.Store(&broken)
	provider, err := oidc.Open(oidc.Options{Issuer: nowhere.URL, ClientID: oidctest.ClientID,
		Rules: rulesFile(t), Every: -1})
	try(t, err)
	defer provider.Close()
	srv = serveOn(t, settleAs(storage.Stored), ingest.Config{Gate: &gate.Gate{OIDC: provider}, Now: time.Now},
		&ingest.FastLaneConfig{})
	if status, rest := swap(t, dial(t, srv), authorized(good, "Bearer "+nowhere.Token(nil))); status !=
		"HTTP/1.1 503 Service Unavailable" ||
		!strings.Contains(rest, "Retry-After: ") || !strings.Contains(rest, "keys-unknown") {
		t.Errorf("no keys: %s\n%s", status, rest)
	}
}

// BenchmarkLaneJWT measures the CPU time of the process for a request with a JWT that was verified before, beside one
// with a token, in turns in one run: JWT/token is the quotient. It includes the client's. The store does nothing.
func BenchmarkLaneJWT(b *testing.B) {
	house, g, static := newHouse(b)
	srv := serveOn(b, settleAs(storage.Stored), ingest.Config{Gate: g, Now: time.Now}, &ingest.FastLaneConfig{})
	conn := dial(b, srv)
	jwt := "Bearer " + house.Token(oidctest.Object{"padding": strings.Repeat("x", 700)}) // as long as Keycloak's
	cpu := func() float64 {
		var used unix.Rusage
		try(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
		return float64(used.Utime.Nano() + used.Stime.Nano())
	}
	for name, pipelined := range map[string]int{"one by one": 1, "32 at once": 32} {
		b.Run(name, func(b *testing.B) {
			answer := make([]byte, 64<<10)
			rounds := 1600 / pipelined
			measure := func(auth string) float64 {
				text := []byte(strings.Repeat(authorized(good, auth), pipelined))
				before := cpu()
				for range rounds {
					if _, err := conn.Write(text); err != nil {
						b.Fatal(err)
					}
					for stored := 0; stored < pipelined; {
						n, err := conn.Read(answer)
						try(b, err)
						stored += bytes.Count(answer[:n], []byte(`{"status":"stored"}`))
					}
				}
				return (cpu() - before) / float64(rounds*pipelined)
			}
			measure(static)
			measure(jwt)
			var ofToken, ofJWT []float64
			for b.Loop() {
				ofToken, ofJWT = append(ofToken, measure(static)), append(ofJWT, measure(jwt))
			}
			if srv.lane.Stats().Moved > 0 {
				b.Fatal("the connection has left the lane")
			}
			slices.Sort(ofToken)
			slices.Sort(ofJWT)
			b.ReportMetric(ofToken[len(ofToken)/2], "ns/token")
			b.ReportMetric(ofJWT[len(ofJWT)/2], "ns/JWT")
			b.ReportMetric(ofJWT[len(ofJWT)/2]/ofToken[len(ofToken)/2], "JWT/token")
		})
	}
}
