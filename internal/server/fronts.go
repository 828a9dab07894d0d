package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A frontInput is an input with a listener of its own, which has the TLS files, limits and shares of the public one.
type frontInput struct {
	socket    string                 // its name, and that of its flag: --NAME-addr
	addr      func(*Options) *string // of the listener
	protocols []string               // of TLS (ALPN)
	tokens    bool                   // clients may have tokens; otherwise, with TLS, they need a certificate
	serve     func(*server, net.Listener, front.Options) (runningFront, error)
}

// A runningFront is the server of an input. It has the methods of a [front.Server].
type runningFront interface {
	runningLane
	metrics.Collector
}

// frontInputs returns the inputs with a listener of their own, in the order in which they are opened.
func frontInputs() []frontInput {
	return []frontInput{
		{"mqtt", func(c *Options) *string { return &c.MQTTAddr }, []string{"mqtt"}, true, (*server).serveMQTT},
		// IANA has no identifier for MLLP
		{"mllp", func(c *Options) *string { return &c.MLLPAddr }, nil, false, (*server).serveMLLP},
	}
}

// frontAddrs returns the addresses of the fronts that are configured.
func frontAddrs(c *Options) (addrs []string) {
	for _, in := range frontInputs() {
		if addr := *in.addr(c); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// frontRules returns the rules of access for the addresses of fronts.
func frontRules(c *Options) (rules []rule) {
	for _, in := range frontInputs() {
		addr, flag := *in.addr(c), socketAddr{socket: in.socket}.flag()
		lacks, remedy := "this server has no tokens", "name a token file with --tokens"
		if !in.tokens {
			lacks, remedy = "clients need no certificate", "name the CA of client certificates with --tls-client-ca"
			rules = append(rules, rule{addr == "" || c.TLSClientCA != "" || c.AccessOptions.open(),
				flag + " requires --tls-client-ca: " + strings.ToUpper(in.socket) +
					" has no tokens, so clients need a certificate"})
		}
		rules = append(rules, rule{c.Insecure || !c.exposed(addr),
			flag + " " + addr + " can be reached from other machines, and " + lacks +
				": anybody could write. Listen on 127.0.0.1, " +
				remedy + ", or add --insecure if something else decides who gets in"})
	}
	return rules
}

// serveFronts serves the fronts that are configured.
func (s *server) serveFronts() error {
	for _, in := range frontInputs() {
		if *in.addr(s.opt) == "" {
			continue
		}
		l, opt := s.listeners.front(&in)
		opt.Core, opt.Gate, opt.Problems, opt.Rejections = s.core, s.access.gate, s.problems, s.rejections
		running, err := in.serve(s, l, opt)
		if err != nil {
			return errors.Join(fmt.Errorf("start %s: %w", in.socket, err), l.Close())
		}
		s.listeners.fronts = append(s.listeners.fronts, running)
		s.listeners.listening = append(s.listeners.listening, listening{l.Addr(), in.socket})
	}
	return nil
}

// front returns the listener of a front, and options with the limits of the public one.
func (s *listeners) front(in *frontInput) (net.Listener, front.Options) {
	opt := front.Options{
		Conns:   &share.Conns{Max: s.opt.MaxConns, MaxGuests: maxGuests, Holders: s.holders},
		Holders: s.holders, FastLane: s.opt.FastLane == "on", Loops: loops(),
		MaxBytes: s.opt.maxBatchBytes, ReadTimeout: s.opt.ReadTimeout, WriteTimeout: 2 * s.opt.ReadTimeout,
	}
	opt.Idle = evictIdle(opt.Conns)
	l := s.sockets[in.socket]
	if s.access.tls != nil {
		config := s.access.tls.TLSConfigWith(func(c *tls.Config) {
			if c.NextProtos = in.protocols; !in.tokens && c.ClientCAs != nil {
				c.ClientAuth = tls.RequireAndVerifyClientCert
			}
		})
		l, opt.TLS = s.secure(l, opt.Conns, config), true
	}
	return l, opt
}

// serveMQTT implements serve of a frontInput.
func (s *server) serveMQTT(l net.Listener, opt front.Options) (runningFront, error) {
	var mapped []mqtt.Mapped
	for _, pattern := range s.parsed.mappings.Topics() {
		topic, err := mqtt.ParseTopic(pattern)
		if err != nil {
			return nil, err
		}
		mapped = append(mapped, mqtt.Mapped{Topic: topic, Input: s.parsed.mappings.OfTopic(pattern)})
	}
	return mqtt.Serve(l, mqtt.Options{Options: opt, Signs: s.parsed.limits.Signs, Topic: s.parsed.topic, Mapped: mapped})
}

// serveMLLP implements serve of a frontInput.
func (s *server) serveMLLP(l net.Listener, opt front.Options) (runningFront, error) {
	return hl7.Serve(l, hl7.ServerOptions{
		Options: opt,
		Messages: hl7.Options{
			Signs: s.parsed.limits.Signs, Zone: s.parsed.zone, Authority: s.opt.MLLPAuthority,
			IgnoreUnknown:    s.opt.UnknownFields == "ignore",
			PulseAsHeartRate: s.opt.pulseAsHeartRate(),
			Patients: hl7.Patients{Assign: s.opt.MLLPAssign, Back: cmp.Or(s.opt.MLLPBack, 24*time.Hour),
				Record: s.recordClaims},
		},
		OnUnknown: func(sender string) {
			s.log.Warn("HL7 messages have no code of a sign: they are ignored and acknowledged", "sender", sender)
		},
	}), nil
}
