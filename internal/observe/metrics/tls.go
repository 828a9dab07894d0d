package metrics

import (
	"crypto/tls"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The lanes of the public listener.
const (
	fastLane = iota
	fullLane
	numLanes
)

var laneNames = [numLanes]string{"fast", "full"}

// The TLS versions that the server supports.
const (
	tlsNone = iota
	tls12
	tls13
	numTLSVersions
)

var tlsVersionNames = [numTLSVersions]string{"none", "1.2", "1.3"}

// tlsVersion returns the number of a version such as tls.VersionTLS13; 0 is no TLS.
func tlsVersion(version uint16) int {
	switch version {
	case 0:
		return tlsNone
	case tls.VersionTLS12:
		return tls12
	}
	return tls13
}

// InFastLane counts a request that the fast lane has answered, on a connection with a
// version of TLS such as tls.VersionTLS13, or 0. It does not allocate.
func (r *Requests) InFastLane(version uint16) { r.lanes[fastLane][tlsVersion(version)].Add(1) }

// Total returns the number of requests counted in both lanes.
func (r *Requests) Total() uint64 {
	n := uint64(0)
	for lane := range r.lanes {
		for version := range r.lanes[lane] {
			n += r.lanes[lane][version].Load()
		}
	}
	return n
}

func (r *Requests) collectLanes(ch chan<- prometheus.Metric) {
	for lane := range r.lanes {
		for version := range r.lanes[lane] {
			Sink(ch).Counter("pulsegate_http_lane_requests_total", "Requests of the public listener, by lane and TLS version.",
				float64(r.lanes[lane][version].Load()), "lane", laneNames[lane], "tls", tlsVersionNames[version])
		}
	}
}

// A HandshakeFailure is why a TLS handshake has failed.
type HandshakeFailure uint8

// The failures.
const (
	HandshakeRefused     HandshakeFailure = iota // no slot was free, or the address had used its share
	HandshakeTimeout                             // it took too long
	HandshakeNotTLS                              // the client did not use TLS
	HandshakeCertificate                         // the client's certificate is missing or invalid
	HandshakeEnded                               // the client has ended it, with an alert or without
	HandshakeProtocol                            // no common version or cipher, or a broken message
	numHandshakeFailures
)

var handshakeFailureNames = [numHandshakeFailures]string{"refused", "timeout", "not_tls", "client_certificate",
	"ended_by_client", "protocol"}

// Handshakes count the TLS handshakes of a listener. The zero Handshakes is ready to use.
// It is safe for concurrent use, and counting does not allocate.
type Handshakes struct {
	done   [numTLSVersions][2]atomic.Uint64 // by version, and whether a session was resumed
	failed [numHandshakeFailures]atomic.Uint64
}

// Done counts a handshake that has succeeded.
func (h *Handshakes) Done(version uint16, resumed bool) {
	i := 0
	if resumed {
		i = 1
	}
	h.done[tlsVersion(version)][i].Add(1)
}

// Failed counts a handshake that has failed.
func (h *Handshakes) Failed(why HandshakeFailure) { h.failed[why].Add(1) }

// Describe implements prometheus.Collector.
func (h *Handshakes) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(h, ch) }

// Collect implements prometheus.Collector.
func (h *Handshakes) Collect(ch chan<- prometheus.Metric) {
	for version := tls12; version < numTLSVersions; version++ {
		for resumed := range h.done[version] {
			Sink(ch).Counter("pulsegate_tls_handshakes_total",
				"TLS handshakes that succeeded, by version and by whether a session was resumed.",
				float64(h.done[version][resumed].Load()), "version", tlsVersionNames[version], "resumed",
				strconv.FormatBool(resumed == 1))
		}
	}
	for why, name := range handshakeFailureNames {
		Sink(ch).Counter("pulsegate_tls_handshake_failures_total", "TLS handshakes that failed, by reason.",
			float64(h.failed[why].Load()), "reason", name)
	}
}
