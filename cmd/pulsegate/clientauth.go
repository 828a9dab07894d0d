package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/server"
)

// clientFlags say who a command is to a server, and whom it trusts. There is no
// flag for the token itself: command lines are seen by everybody on a machine.
type clientFlags struct {
	TokenFile string `type:"path" placeholder:"FILE" help:"File with the token to send. Default: the token in the environment variable PULSEGATE_TOKEN, if there is one."`
	CA        string `name:"ca" type:"path" placeholder:"FILE" help:"CAs in PEM that the server's certificate is to be signed by. Default: the system's. Only with https."`
	Cert      string `name:"cert" type:"path" placeholder:"FILE" help:"Client certificate in PEM. Only with https."`
	Key       string `name:"key" type:"path" placeholder:"FILE" help:"Key of the client certificate in PEM."`
}

// tokenVariable holds a token, as an environment variable.
const tokenVariable = "PULSEGATE_TOKEN"

// Bounds of files.
const (
	maxTokenFileBytes = 4 << 10
	maxPEMFileBytes   = 4 << 20
)

// A credential is what the flags name.
type credential struct {
	token string      // ""; none
	tls   *tls.Config // nil: the default
}

// load reads the files. It warns on stderr of a token that others can overhear.
func (f *clientFlags) load(target string, stderr io.Writer) (c credential, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return c, usageError{"--target is not of the form http://host:port"}
	}
	if c.token, err = f.token(); err != nil {
		return c, err
	}
	if u.Scheme != "https" {
		if f.CA != "" || f.Cert != "" || f.Key != "" {
			return c, usageError{"--ca, --cert and --key are for a --target with https"}
		}
		if c.token != "" && !server.IsLoopback(u.Hostname()) {
			fmt.Fprintln(stderr, "warning: token and readings travel in clear text; use https")
		}
		return c, nil
	}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := readBounded(f.CA, maxPEMFileBytes)
		if err != nil {
			return c, fmt.Errorf("read CAs: %w", err)
		}
		c.tls.RootCAs = x509.NewCertPool()
		if !c.tls.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("read CAs: %s: it holds no certificate in PEM", f.CA)
		}
	}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return c, usageError{"--cert and --key come together"}
	case f.Cert != "":
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return c, fmt.Errorf("read client certificate: %w", err)
		}
		c.tls.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// token returns the token to send; "" for none. Errors do not repeat what may be
// one.
func (f *clientFlags) token() (string, error) {
	text, from := os.Getenv(tokenVariable), "environment variable "+tokenVariable
	if err := notToken("--token-file", f.TokenFile); err != nil {
		return "", err
	}
	if f.TokenFile != "" {
		file, err := readBounded(f.TokenFile, maxTokenFileBytes)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		text, from = string(bytes.TrimSpace(file)), f.TokenFile
		if text == "" {
			return "", fmt.Errorf("read token: %s: it is empty", from)
		}
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("read token: %s: it does not hold one token", from)
	}
	return text, nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}

// notToken refuses the text of a token where a file is to be named: errors and logs
// repeat names of files.
func notToken(flag, path string) error {
	if token.IsText(path) {
		return usageError{flag + " is to name a file, and was given the text of a token"}
	}
	return nil
}
