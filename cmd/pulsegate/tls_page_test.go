package main_test

import (
	"strings"
	"testing"
)

// The commands of docs/tls.md do what it says, over HTTPS with a token and with a client
// certificate.
//
// Seen to fail with a server certificate for another name, and without --tls-client-ca.
func followTLSPage(t *testing.T) {
	blocks := pageBlocks(t, "tls.md", 6)
	certificate, serve, withToken := blocks[0], blocks[1], blocks[2]
	clientCertificate, serveClients, withCertificate := blocks[3], strings.TrimSpace(blocks[4]), blocks[5]
	r := newReader(t)
	r.follow(certificate)
	r.follow(serve)
	r.shown.Reset() // what openssl says
	r.follow(withToken)
	r.want(`{"status":"stored"}`, "\nppg-000123 ")
	r.restart(func() { r.follow(clientCertificate) }, serveClients)
	r.follow(withCertificate)
	r.want(`{"status":"stored"}`, `"device":"ppg-000124"`, `"gateway":"bed-8"`)
	r.stop()
}
