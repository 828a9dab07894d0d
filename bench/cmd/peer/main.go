// Command peer provides the servers for comparison: small servers that accept a reading
// by POST /v1/readings, each built like typical services of its kind.
//
//	peer MODE [-addr HOST:PORT] [-dsn DSN] [-cert FILE -key FILE]
//
// The modes, in order of increasing work per request:
//
//	floor     an epoll loop: one read, one write of a fixed answer, nothing parsed
//	fasthttp  fasthttp with a fixed answer, nothing decoded
//	nethttp   net/http with a fixed answer, nothing decoded
//	gin       gin, which decodes and answers with encoding/json
//	before    gorilla/mux, a logrus line, json.Unmarshal, json.MarshalIndent
//	ginpg     like gin, with one INSERT into PostgreSQL before the answer
//
// nethttp serves over TLS if there is a certificate, -cert and -key. These modes need one:
//
//	tlsfloor      floor with crypto/tls
//	tlshandshake  handshakes only
//
// It prints "listening addr=HOST:PORT" to standard error and serves until SIGTERM or
// SIGINT. It is not suitable for any other use: there are no timeouts, and the mode
// floor does not parse requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/pulsegate/pulsegate/bench/answers"
)

// path is the path to which readings are posted, as in Pulsegate.
const path = answers.VitalsPath

// fixedAnswer is the answer of the modes that do not build one.
const fixedAnswer = answers.VitalsAnswer

// A config has the values of the flags.
type config struct {
	addr      string
	dsn       string // PostgreSQL for mode ginpg
	cert, key string // PEM files for TLS
}

// A server serves l until ctx is done.
type server func(ctx context.Context, l net.Listener, cfg config) error

// servers returns the servers by mode.
func servers() map[string]server {
	return map[string]server{
		"floor":    serveFloor,
		"fasthttp": serveFastHTTP,
		"nethttp":  serveNetHTTP,
		"gin":      serveGin,
		"before":   serveBefore,
		"ginpg":    serveGinPG,

		"tlsfloor":     serveTLSFloor,
		"tlshandshake": serveTLSHandshake,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a mode: floor, fasthttp, nethttp, gin, before, ginpg, tlsfloor or tlshandshake")
	}
	serve, ok := servers()[args[0]]
	if !ok {
		return fmt.Errorf("unknown mode %q", args[0])
	}
	var cfg config
	flags := flag.NewFlagSet("peer "+args[0], flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:0", "address to listen on; port 0 picks a free one")
	flags.StringVar(&cfg.dsn, "dsn", "", "ginpg: PostgreSQL to insert into")
	flags.StringVar(&cfg.cert, "cert", "", "TLS: certificate in PEM")
	flags.StringVar(&cfg.key, "key", "", "TLS: its key in PEM")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return fmt.Errorf("open listener: %w", err)
	}
	fmt.Fprintf(os.Stderr, "listening addr=%s listener=public\n", l.Addr())
	return serve(ctx, l, cfg)
}
