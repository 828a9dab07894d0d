// Package alertmanager reports active alerts to Prometheus Alertmanager.
//
// # Promise
//
//   - Every alert that is active is sent, again and again, until it ends; its end is sent once.
//     Nothing is sent before the states of all devices are known, so that a restart neither fires nor
//     resolves an alert.
//   - While an Alertmanager cannot be reached, nothing but the newest changes is kept in memory; what is
//     active by then is sent when it can be reached again.
//   - What is sent has the name of the device, and what the rules say: no measured value, no subject.
//
// # Goroutines
//
// [Sender.Run] is one goroutine for each Alertmanager: none waits for another.
//
// # Not here
//
// Which alerts are active: package alert. Grouping, silencing and delivery: Alertmanager.
package alertmanager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Options configure a [Sender].
type Options struct {
	URL  *url.URL // of the Alertmanager, without /api/v2
	Page string   // URL of the page of this server, to which alerts link

	// Roster, if not nil, has labels of devices. An alert keeps those with which it was first sent: Alertmanager knows
	// it by them, so that a change must not end it. Its summary has the present one.
	Roster *roster.Book

	// Every is how often active alerts are sent again. Default [DefaultEvery].
	Every time.Duration

	Roots       *x509.CertPool // nil means those of the system
	RootsExpire time.Time      // when the first of Roots expires

	// CredentialsFile has NAME:PASSWORD for basic authentication, or a bearer token, which has no colon (RFC 6750,
	// section 2.1). It is read for each request. "" means that none are sent.
	CredentialsFile string

	// OnTrouble is called with an error when the Alertmanager begins to fail, and with nil when it works
	// again.
	OnTrouble func(*Sender, error)
}

// DefaultEvery is the default of Options.Every.
const DefaultEvery = time.Minute

// Bounds of a Sender.
const (
	gatherFor      = time.Second // changes gather for this long
	requestTimeout = 10 * time.Second
	maxBatchAlerts = 1000
	maxBatchBytes  = 512 << 10
	maxAnswerBytes = 64 << 10 // read, so that the connection can be used again
	minRetry       = time.Second
	maxRetry       = 30 * time.Second
)

// lasts returns how long an alert that was sent is active without being sent again: a restart may take a
// minute, and three requests may fail.
func (o *Options) lasts() time.Duration { return 4*o.Every + time.Minute }

// A Sender reports the alerts of an engine to an Alertmanager.
type Sender struct {
	engine *alert.Engine
	opt    Options
	url    string
	client *http.Client

	sent, failed atomic.Uint64 // alerts, and requests

	// places has the label and group with which alerts were first sent, by keyOf: of those that were sent since all
	// were, and have not ended. Only Run uses it.
	places map[string]roster.Device
	ending map[string]roster.Device // the same of alerts that have ended, until that was sent. Only Run uses it

	mu           sync.Mutex
	failingSince time.Time // guarded by mu; zero means that the last request has succeeded, or there was none
	cause        error     // guarded by mu
}

// New returns a Sender, which Run runs.
func New(engine *alert.Engine, opt Options) *Sender {
	if opt.Every <= 0 {
		opt.Every = DefaultEvery
	}
	return &Sender{
		engine: engine, opt: opt, places: map[string]roster.Device{}, ending: map[string]roster.Device{},
		url: opt.URL.JoinPath("api", "v2", "alerts").String(),
		client: &http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: requestTimeout / 2}).DialContext,
				TLSClientConfig:     &tls.Config{RootCAs: opt.Roots, MinVersion: tls.VersionTLS12},
				TLSHandshakeTimeout: requestTimeout / 2,
				MaxConnsPerHost:     1,
				IdleConnTimeout:     2 * opt.Every,
				ForceAttemptHTTP2:   true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// URL returns the URL of the Alertmanager.
func (s *Sender) URL() string { return s.opt.URL.String() }

// Failing returns since when the Alertmanager has not accepted alerts, and why; or a zero time.
func (s *Sender) Failing() (since time.Time, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failingSince, s.cause
}

// Run sends alerts until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	var reported uint64 // changes that the Alertmanager knows of
	var allAt time.Time // when all active alerts are sent
	retry := minRetry
	for {
		c := s.engine.Changes(reported)
		alerts, all := c.Alerts, c.Lost || !time.Now().Before(allAt)
		if all {
			if alerts, c = s.engine.State(reported); c.Ready || len(alerts) > 0 {
				s.engine.Refresh(ctx) // otherwise it might raise again what another server has resolved
				alerts, c = s.engine.State(reported)
			}
			ended := slices.DeleteFunc(c.Alerts, func(a alert.Alert) bool { return a.EndedUnixMs == 0 })
			alerts = append(ended, alerts...)
		}
		wait := time.Until(allAt)
		switch {
		case !c.Ready && len(alerts) == 0:
			wait = s.opt.Every
		case all || len(alerts) > 0:
			if all {
				s.keepPlaces(alerts)
			}
			alerts = s.placed(alerts)
			err := s.send(ctx, alerts)
			if ctx.Err() != nil {
				return
			}
			s.note(err)
			if err != nil {
				allAt = time.Time{} // an Alertmanager that was restarted has forgotten all
				wait, c.Next = retry/2+rand.N(retry), nil
				retry = min(2*retry, maxRetry)
				break
			}
			reported, retry = c.N, minRetry
			s.settle(alerts)
			if all {
				allAt = time.Now().Add(s.opt.Every)
				wait = s.opt.Every
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-c.Next:
			select {
			case <-ctx.Done():
				return
			case <-time.After(gatherFor):
			}
		}
	}
}

// keyOf returns a text that two alerts share if Alertmanager knows them as the same one, whatever people call the
// device.
func keyOf(a *alert.Alert) string {
	of := *a
	of.Place = roster.Device{}
	text, err := json.Marshal(of.Labels()) // sorted
	if err != nil {
		panic(err) // no map of strings has this error
	}
	return string(text)
}

// placed returns alerts, which are in the order in which they began and ended, with the label and group with which each
// is sent: that with which it was first sent, also if a request has failed. One that begins after its end in this list
// has the present ones, since Alertmanager gets that end too.
func (s *Sender) placed(alerts []alert.Alert) []alert.Alert {
	if s.opt.Roster == nil {
		return alerts
	}
	now := s.opt.Roster.Current()
	alerts = slices.Clone(alerts)
	began := map[string]bool{} // in this list
	for i := range alerts {
		a := &alerts[i]
		key := keyOf(a)
		place, known := s.places[key]
		if a.EndedUnixMs != 0 && !began[key] {
			if before, failed := s.ending[key]; failed {
				place, known = before, true
			} else if known {
				delete(s.places, key)
			}
		}
		if !known {
			place = now.Of(&a.Device)
		}
		switch a.Place = place; {
		case a.EndedUnixMs == 0:
			s.places[key], began[key] = place, true
		case !began[key]:
			s.ending[key] = place
		}
	}
	return alerts
}

// keepPlaces forgets the labels of alerts that are not among these, also if the Alertmanager is away.
func (s *Sender) keepPlaces(alerts []alert.Alert) {
	if len(s.places)+len(s.ending) == 0 {
		return
	}
	kept := map[string]bool{}
	for i := range alerts {
		kept[keyOf(&alerts[i])] = true
	}
	for _, places := range []map[string]roster.Device{s.places, s.ending} {
		maps.DeleteFunc(places, func(key string, _ roster.Device) bool { return !kept[key] })
	}
}

// settle forgets the labels of alerts that have ended, after they were sent.
func (s *Sender) settle(alerts []alert.Alert) {
	if len(s.places)+len(s.ending) == 0 {
		return
	}
	ended := map[string]bool{}
	for i := range alerts {
		ended[keyOf(&alerts[i])] = alerts[i].EndedUnixMs != 0
	}
	for key, is := range ended {
		delete(s.ending, key)
		if is {
			delete(s.places, key)
		}
	}
}

// note notes the outcome of sending.
func (s *Sender) note(err error) {
	s.mu.Lock()
	was := !s.failingSince.IsZero()
	switch {
	case err == nil:
		s.failingSince, s.cause = time.Time{}, nil
	case !was:
		s.failingSince = time.Now()
		fallthrough
	default:
		s.cause = err
	}
	s.mu.Unlock()
	if s.opt.OnTrouble != nil && was != (err != nil) {
		s.opt.OnTrouble(s, err)
	}
}

// send sends alerts in their order. If there are none, it sends an empty list, which shows whether the
// Alertmanager can be reached.
func (s *Sender) send(ctx context.Context, alerts []alert.Alert) (err error) {
	defer func() {
		if err != nil {
			s.failed.Add(1)
		}
	}()
	now := time.Now()
	for {
		some := alerts[:min(len(alerts), maxBatchAlerts)]
		if err := s.post(ctx, some, now); err != nil {
			return err
		}
		if alerts = alerts[len(some):]; len(alerts) == 0 {
			return nil
		}
	}
}

// post sends some alerts in one request, or in several if they are long.
func (s *Sender) post(ctx context.Context, alerts []alert.Alert, now time.Time) error {
	all := make([]posted, len(alerts))
	for i := range alerts {
		all[i] = s.posted(&alerts[i], now)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // no value of the type has this error
	}
	if half := len(alerts) / 2; half > 0 && len(text) > maxBatchBytes {
		if err := s.post(ctx, alerts[:half], now); err != nil {
			return err
		}
		return s.post(ctx, alerts[half:], now)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.opt.CredentialsFile != "" {
		secret, err := sharedfile.Secret(s.opt.CredentialsFile)
		if err != nil {
			return err
		}
		if name, password, basic := strings.Cut(secret, ":"); basic {
			r.SetBasicAuth(name, password)
		} else {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return shown(err)
	}
	defer answer.Body.Close()
	// it may repeat what was sent, so it is not shown
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswerBytes))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it answers with status %d", answer.StatusCode)
	}
	s.sent.Add(uint64(len(alerts)))
	return nil
}

// shown returns what is shown of the error of a request: not the URL, and nothing that the Alertmanager has
// answered, because that may repeat what was sent, with the password or the token.
func shown(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	_, network := errors.AsType[net.Error](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	if network || certificate || alert || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.New("its answer is not HTTP, or not of the scheme of its URL")
}

// A posted alert is as in the API of Alertmanager: api/v2/openapi.yaml, postableAlert.
type posted struct {
	Labels      map[string]string `json:"labels"`
	Annotations annotations       `json:"annotations"`
	StartsAt    string            `json:"startsAt"`
	EndsAt      string            `json:"endsAt"`
	Generator   string            `json:"generatorURL"`
}

type annotations struct {
	Summary string `json:"summary"`
	Notice  string `json:"notice"`
}

// posted returns an alert, with its place, as it is sent at a time.
func (s *Sender) posted(a *alert.Alert, now time.Time) posted {
	nowUnixMs := now.UnixMilli()
	until, since := now.Add(s.opt.lasts()).UnixMilli(), min(a.SinceUnixMs, nowUnixMs) // a device's clock may be ahead
	if a.EndedUnixMs != 0 {
		until = min(a.EndedUnixMs, nowUnixMs)
		since = min(since, until)
	}
	name := a.Device.String()
	if called := s.opt.Roster.Current().Of(&a.Device); called.Label != "" { // now
		name = called.Label + " (" + name + ")"
	}
	return posted{
		Labels:      a.Labels(),
		Annotations: annotations{name + ": " + a.Rule.Condition, alert.Notice},
		StartsAt:    utc(since), EndsAt: utc(until),
		Generator: a.PageURL(s.opt.Page),
	}
}

// utc returns a time in RFC 3339.
func utc(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z") }
