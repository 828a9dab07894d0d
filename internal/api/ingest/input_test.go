package ingest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A plainInput decodes messages such as "d 1790000000000 72; d 1790000001000 73": device, time and
// heart rate.
type plainInput struct{}

func (plainInput) Decode(message []byte, in *ingest.Intake) error {
	for i, text := range strings.Split(string(message), "; ") {
		var r vitals.Reading
		var device string
		var bpm int64
		if _, err := fmt.Sscanf(text, "%s %d %d", &device, &r.TimeUnixMs, &bpm); err != nil {
			return ingest.Malformed(fmt.Sprintf("Reading %d is not a device, a time and a heart rate.", i))
		}
		name, err := vitals.ParseName(device)
		if err != nil {
			return ingest.Invalid("device", "not a name")
		}
		r.Device = name
		r.Values.Set(vitals.HeartRate, vitals.Value(100*bpm))
		if err := in.Rules.Validate(&r, in.NowUnixMs); err != nil {
			refused, ok := errors.AsType[*vitals.FieldError](err)
			if !ok {
				return err
			}
			refused.Index = i
			in.Batch.Refused = append(in.Batch.Refused, *refused)
			continue
		}
		in.Batch.Readings = append(in.Batch.Readings, r)
		in.Batch.Index = append(in.Batch.Index, int32(i))
	}
	return nil
}

func plainForm(*http.Request) ingest.Input { return plainInput{} }

// servePlain receives lines from a connection: a token, then a message in each line. It acknowledges
// a message with one word for each reading. This, and the type above, are all that a further
// protocol needs.
func servePlain(core *ingest.Core, conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	lines.Scan()
	from := gate.Credentials{Authorization: lines.Text()}
	for lines.Scan() {
		core.Receive(context.Background(), &ingest.Delivery{From: from, Input: plainInput{}, Message: lines.Bytes()}, func(o *ingest.Outcome) {
			var ack []string
			if why, rejected := o.Refusal(); rejected {
				ack = []string{why.Problem.Title()}
			} else {
				for r := range o.Results() {
					switch r.Outcome {
					case storage.Stored, storage.Completed:
						ack = append(ack, "stored")
					case storage.Duplicate:
						ack = append(ack, "duplicate")
					default:
						ack = append(ack, r.Field+": "+r.Reason)
					}
				}
			}
			fmt.Fprintln(conn, strings.Join(ack, "; "))
		})
	}
}

// TestInput checks that a protocol other than HTTP needs only an [ingest.Input] and a front that
// calls Receive: access, validation, duplicates, conflicts and answers after the commit are those
// of the Core. Seen to fail when Receive did not authorize.
func TestInput(t *testing.T) {
	k := newKeyring(t)
	s := serveMemory(t, ingest.Config{Gate: k.gate}, nil, nil)
	ms := now.UnixMilli()
	at := func(offset int64, bpm int) string { return fmt.Sprintf("ppg-1 %d %d", ms+offset, bpm) }
	for _, tt := range []struct{ name, token, message, want string }{
		{"no token", "", at(-9000, 72), "Credentials are needed"},
		{"a token that may only read", k.read, at(-9000, 72), "The credentials do not allow this"},
		{"another device", k.ppg, "x" + at(-9000, 72), "device: the token is not for this device"},
		{"a reading", k.write, at(-9000, 72), "stored"},
		{"again", k.write, at(-9000, 72), "duplicate"},
		{"another value", k.write, at(-9000, 73), "heart_rate_bpm: contradicts the stored value"},
		{"several", k.write, strings.Join([]string{at(-8000, 72), at(-7000, 0), at(-9000, 72)}, "; "), "stored; heart_rate_bpm: no signal; duplicate"},
		{"not of the form", k.write, "ppg-1 now", "The body is not valid"},
		{"the whole rate", k.slow, strings.Join([]string{at(-6000, 71), at(-5000, 71), at(-4000, 71)}, "; "), "stored; stored; stored"},
		{"beyond the rate", k.slow, at(-3000, 71), "The token's rate is exceeded"},
	} {
		client, conn := net.Pipe()
		var served sync.WaitGroup
		served.Go(func() { servePlain(s.core, conn) })
		fmt.Fprintf(client, "%s\n%s\n", tt.token, tt.message)
		got, err := bufio.NewReader(client).ReadString('\n')
		try(t, err)
		if got = strings.TrimSuffix(got, "\n"); got != tt.want {
			t.Errorf("%s: answer %q, want %q", tt.name, got, tt.want)
		}
		client.Close()
		served.Wait()
	}
}

// TestInputOverHTTP checks that one line in a table of routes serves the same input over HTTP,
// with the answers of POST /v1/readings.
func TestInputOverHTTP(t *testing.T) {
	s := serveMemory(t, ingest.Config{}, nil, nil)
	h := s.core.Handler(plainForm)
	message := fmt.Sprintf("d %d 72; d %d 0", now.UnixMilli()-1000, now.UnixMilli()-2000)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(message)))
	got, _ := io.ReadAll(w.Body)
	const want = `{"stored":1,"duplicate":0,"rejected":[{"index":1,"field":"heart_rate_bpm","reason":"no signal"}]}`
	if w.Code != http.StatusMultiStatus || strings.TrimSpace(string(got)) != want {
		t.Errorf("answer %d %s, want 207 %s", w.Code, got, want)
	}
}

// TestReceiveAfterCommit checks that Receive answers only when the store's Append has returned, and
// that a drained or full Core rejects messages. Seen to fail when Receive answered before Commit.
func TestReceiveAfterCommit(t *testing.T) {
	appending, release := make(chan struct{}), make(chan struct{})
	s := serveMemory(t, ingest.Config{}, func([]*storage.Entry) error {
		close(appending)
		<-release
		return nil
	}, nil)
	message := fmt.Appendf(nil, "d %d 72", now.UnixMilli())
	answered := make(chan bool)
	receive := func() {
		s.core.Receive(context.Background(), &ingest.Delivery{Input: plainInput{}, Message: message}, func(o *ingest.Outcome) {
			_, rejected := o.Refusal()
			answered <- rejected
		})
	}
	go receive()
	select {
	case <-appending:
	case <-answered:
		t.Fatal("answered before the append began")
	}
	select {
	case <-answered:
		t.Fatal("answered before the append returned")
	default:
	}
	close(release)
	if <-answered {
		t.Error("rejected, want stored")
	}
	s.core.Drain()
	go receive()
	if !<-answered {
		t.Error("accepted while draining")
	}
}
