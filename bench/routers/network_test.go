package routers_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// notSent lists the methods and paths that a client cannot send.
var notSent = regexp.MustCompile(`[^!-~]`)

// overNetwork sends the request to a server and returns the raw response, including a
// body after HEAD, which an http.Client would hide.
func (in *instance) overNetwork(spec requestSpec) string {
	req := spec.request()
	target := req.URL.EscapedPath()
	if req.URL.RawQuery != "" {
		target += "?" + req.URL.RawQuery
	}
	if !strings.HasPrefix(target, "/") || notSent.MatchString(target+req.Method+spec.host) || spec.host == "" ||
		req.Method == http.MethodConnect {
		return "not sent"
	}
	in.log, in.depth = nil, 0
	server := &http.Server{Handler: in.served, ErrorLog: log.New(io.Discard, "", 0)} // panics are compared elsewhere
	conn, end := net.Pipe()
	l := &oneConn{conn: end, closed: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() {
		server.Close()
		<-done
	}()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err.Error()
	}
	go fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", req.Method, target, spec.host)
	answer, err := io.ReadAll(conn)
	return fmt.Sprintf("%s %v %q", date.ReplaceAll(bytes.TrimSpace(answer), nil), err, withoutRouteMiddleware(in.log))
}

var date = regexp.MustCompile(`Date: [^\r]*`)

// A oneConn is a listener that returns one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, http.ErrServerClosed
}

func (l *oneConn) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
