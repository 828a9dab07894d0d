package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrNotPulsegate means that a target answers, but not as Pulsegate does.
var ErrNotPulsegate = errors.New("sim: the target does not answer as Pulsegate does")

// Bounds of reading back.
const (
	readTries        = 6
	readIdleTimeout  = 30 * time.Second // in which a server may send nothing
	maxReadLineBytes = 64 << 10
	devicesPerPage   = 1000
)

// A readClient asks the read API. Its methods may be called from several
// goroutines.
type readClient struct {
	target *Target
	token  string
	http   *http.Client
	rules  *vitals.Validator
}

func newReadClient(target *Target, token string) *readClient {
	// What is stored may have been accepted by ranges of any configuration.
	limits := vitals.Limits{MaxAhead: math.MaxInt64}
	for sign := range limits.Accepted {
		limits.Accepted[sign] = vitals.Range{Min: 1, Max: ^vitals.Hundredths(0) - 1}
	}
	rules, err := vitals.NewValidator(limits)
	if err != nil {
		panic("sim: " + err.Error()) // the limits are constant
	}
	transport := &http.Transport{
		DialContext:         target.dialContext,
		TLSClientConfig:     target.tlsConfig(),
		MaxIdleConnsPerHost: verifyWorkers,
		DisableCompression:  true,
	}
	return &readClient{target: target, token: token, rules: rules, http: &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // to another machine, perhaps
		},
	}}
}

func (c *readClient) close() { c.http.CloseIdleConnections() }

// dialContext connects to one of the target's addresses, whatever the name in
// the URL means by now.
func (t *Target) dialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	var errs error
	for _, addr := range t.addrs {
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPort(addr).String())
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// A readProblem is an answer other than 200.
type readProblem struct {
	status     int
	retryAfter time.Duration
}

func (e *readProblem) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.status, http.StatusText(e.status))
}

// get asks for path and hands the body to use. The connection ends when the
// server sends nothing for readIdleTimeout.
func (c *readClient) get(ctx context.Context, path string, use func(http.Header, io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(readIdleTimeout, func() { cancel(fmt.Errorf("the server sent nothing for %v", readIdleTimeout)) })
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.url+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		wait, _ := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
		return &readProblem{resp.StatusCode, wait}
	}
	return use(resp.Header, readerFunc(func(p []byte) (int, error) {
		n, err := resp.Body.Read(p)
		idle.Reset(readIdleTimeout)
		return n, err
	}))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// again calls try until it succeeds, up to readTries times. An error that wraps
// errFinal ends it at once, and so does a 4xx.
func again(ctx context.Context, try func() error) error {
	wait := 200 * time.Millisecond
	for n := 1; ; n++ {
		err := try()
		var p *readProblem
		if err == nil || errors.Is(err, errFinal) || ctx.Err() != nil || n == readTries {
			return err
		}
		after := wait
		if errors.As(err, &p) {
			if p.status < 500 && p.status != http.StatusTooManyRequests {
				return err
			}
			after = max(after, min(p.retryAfter, 30*time.Second))
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		wait *= 2
	}
}

// errFinal marks errors that another try does not mend.
var errFinal = errors.New("sim: cannot read back")

// readings calls f for every stored reading of a device, in the order in which
// the server sends them. When an answer breaks off, it goes on behind the last
// whole reading.
func (c *readClient) readings(ctx context.Context, device string, f func(*vitals.Reading) error) error {
	name, err := vitals.ParseName(device)
	if err != nil {
		return fmt.Errorf("%w: it lists a device that has no name: %w", ErrNotPulsegate, err)
	}
	from := int64(math.MinInt64)
	decoder := vitals.NewDecoder(c.rules, vitals.DecoderOptions{IgnoreUnknown: true, MaxReadings: 1})
	var batch vitals.Batch
	use := func(header http.Header, body io.Reader) error {
		in := bufio.NewReaderSize(body, maxReadLineBytes)
		for {
			line, err := in.ReadSlice('\n')
			switch {
			case err == io.EOF && len(line) == 0:
				return nil
			case err == io.EOF:
				return io.ErrUnexpectedEOF
			case err == bufio.ErrBufferFull:
				return fmt.Errorf("%w: %w: a line of readings is too long", errFinal, ErrNotPulsegate)
			case err != nil:
				return err
			}
			if decoder.Decode(line, vitals.MaxTimeUnixMs, &batch) != nil || len(batch.Readings) != 1 {
				return fmt.Errorf("%w: %w: a line of readings is no reading", errFinal, ErrNotPulsegate)
			}
			r := &batch.Readings[0]
			if r.Device != name {
				return fmt.Errorf("%w: %w: the readings of one device hold another's", errFinal, ErrNotPulsegate)
			}
			if err := f(r); err != nil {
				return fmt.Errorf("%w: %w", errFinal, err)
			}
			from = r.TimeUnixMs + 1
		}
	}
	err = again(ctx, func() error {
		path := "/v1/devices/" + url.PathEscape(device) + "/readings?format=ndjson&flags=false"
		if from != math.MinInt64 {
			path += "&from=" + strconv.FormatInt(from, 10)
		}
		err := c.get(ctx, path, use)
		var p *readProblem
		if errors.As(err, &p) && p.status == http.StatusNotFound {
			return nil // nothing was ever stored of it
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read back device %s: %w", device, err)
	}
	return nil
}

// A devicePage is a page of GET /v1/devices.
type devicePage struct {
	Devices *[]struct {
		Device string `json:"device"`
	} `json:"devices"`
	NextCursor string `json:"next_cursor"`
}

// page fetches a page of devices.
func (c *readClient) page(ctx context.Context, limit int, cursor string) (page devicePage, err error) {
	path := "/v1/devices?limit=" + strconv.Itoa(limit)
	if cursor != "" {
		path += "&cursor=" + url.QueryEscape(cursor)
	}
	err = c.get(ctx, path, func(_ http.Header, body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxAnswerBytes+1))
		if err != nil {
			return err
		}
		page = devicePage{}
		if len(text) > maxAnswerBytes || json.Unmarshal(text, &page) != nil || page.Devices == nil {
			return fmt.Errorf("%w: %w: its list of devices is none", errFinal, ErrNotPulsegate)
		}
		return nil
	})
	return page, err
}

// eachDevice calls f for every device of the server.
func (c *readClient) eachDevice(ctx context.Context, f func(name string) error) error {
	for cursor := ""; ; {
		var page devicePage
		err := again(ctx, func() (err error) {
			page, err = c.page(ctx, devicesPerPage, cursor)
			return err
		})
		if err != nil {
			return fmt.Errorf("list devices: %w", err)
		}
		for _, d := range *page.Devices {
			if err := f(d.Device); err != nil {
				return err
			}
		}
		if page.NextCursor == "" {
			return nil
		}
		if page.NextCursor == cursor || len(*page.Devices) == 0 {
			return fmt.Errorf("list devices: %w: a page leads to itself", ErrNotPulsegate)
		}
		cursor = page.NextCursor
	}
}

// probe asks the target one question, to find out early whether it is Pulsegate.
// A token that may write only is answered with 401 or 403, which is as good.
func probe(ctx context.Context, target *Target, token string) error {
	c := newReadClient(target, token)
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.page(ctx, 1, "")
	var p *readProblem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p) && (p.status == http.StatusForbidden || p.status == http.StatusServiceUnavailable || p.status == http.StatusTooManyRequests):
		return nil
	case errors.As(err, &p) && p.status == http.StatusUnauthorized:
		return fmt.Errorf("sim: the target wants a token: %w", p)
	case errors.As(err, &p):
		return fmt.Errorf("%w: GET /v1/devices: %w", ErrNotPulsegate, p)
	case errors.Is(err, ErrNotPulsegate):
		return ErrNotPulsegate
	}
	return fmt.Errorf("sim: the target cannot be reached: %w", err)
}
