package eventloop_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// Types of records (RFC 8446, section 5.1).
const (
	handshake = 22
	appData   = 23
)

// A sealer is a TLS 1.3 client that encrypts its own records, valid and invalid ones.
// crypto/tls reads what the server sends; its writes are dropped after the handshake.
type sealer struct {
	t      *testing.T
	tcp    *net.TCPConn
	client *tls.Conn
	err    error // of rawMayFail

	newHash func() hash.Hash
	keyLen  int
	secret  []byte // of the client's traffic
	seq     uint64
	aead    cipher.AEAD
	iv      []byte
}

// sealed connects until the end of the test.
func sealed(t *testing.T, s *eventloop.Server) *sealer {
	t.Helper()
	return sealedWith(t, s, "")
}

// sealedWith is sealed. It sends text, if not empty, together with the end of the handshake.
func sealedWith(t *testing.T, s *eventloop.Server, text string) *sealer {
	t.Helper()
	c, _ := sealedWithPart(t, s, text, 0)
	return c
}

// sealedWithPart is like sealedWith, but sends without the last bytes, missing of them, which it
// returns.
func sealedWithPart(t *testing.T, s *eventloop.Server, text string, missing int) (_ *sealer, rest []byte) {
	t.Helper()
	c := &sealer{t: t, tcp: dial(t, s.Addr().String())}
	var keys bytes.Buffer
	wire := &tap{Conn: c.tcp, holds: text != ""}
	quiet := &mute{Conn: wire}
	c.client = tls.Client(quiet, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, KeyLogWriter: &keys})
	try(t, c.client.HandshakeContext(t.Context()))
	quiet.on = true
	c.newHash, c.keyLen = sha256.New, 16
	switch suite := c.client.ConnectionState().CipherSuite; suite {
	case tls.TLS_AES_128_GCM_SHA256:
	case tls.TLS_AES_256_GCM_SHA384:
		c.newHash, c.keyLen = sha512.New384, 32
	default:
		t.Fatalf("no records of %s in this test", tls.CipherSuiteName(suite))
	}
	for line := range strings.Lines(keys.String()) {
		if fields := strings.Fields(line); fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			try(t, err)
			c.use(secret)
		}
	}
	if text != "" {
		all := append(wire.held, c.record(appData, []byte(text))...)
		c.raw(all[:len(all)-missing])
		rest = all[len(all)-missing:]
	}
	return c, rest
}

// A mute drops what is written to it once on is set.
type mute struct {
	net.Conn
	on bool
}

func (m *mute) Write(p []byte) (int, error) {
	if m.on {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// use protects further records with a secret (RFC 8446, section 7.3).
func (c *sealer) use(secret []byte) {
	c.secret, c.seq = secret, 0
	block, err := aes.NewCipher(c.expand("key", c.keyLen))
	try(c.t, err)
	c.aead, err = cipher.NewGCM(block)
	try(c.t, err)
	c.iv = c.expand("iv", 12)
}

// expand is HKDF-Expand-Label (RFC 8446, section 7.1).
func (c *sealer) expand(label string, length int) []byte {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(append(info, byte(len(label))), label...)
	out, err := hkdf.Expand(c.newHash, c.secret, string(append(info, 0)), length)
	try(c.t, err)
	return out
}

// record returns the next record.
func (c *sealer) record(kind byte, data []byte) []byte {
	inner := append(append([]byte(nil), data...), kind)
	n := len(inner) + c.aead.Overhead()
	header := []byte{appData, 3, 3, byte(n >> 8), byte(n)}
	nonce := bytes.Clone(c.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(c.seq >> (56 - 8*i))
	}
	c.seq++
	return c.aead.Seal(header, nonce, inner, header)
}

// keyUpdate returns a record that changes the client's keys, and may ask the server to
// change its own.
func (c *sealer) keyUpdate(request bool) []byte {
	message := []byte{24, 0, 0, 1, 0}
	if request {
		message[4] = 1
	}
	r := c.record(handshake, message)
	c.use(c.expand("traffic upd", c.newHash().Size()))
	return r
}

// longKeyUpdate is like keyUpdate(true), in a record of n bytes.
func (c *sealer) longKeyUpdate(n int) []byte {
	const header, tag = 5, 16
	inner := make([]byte, n-header-tag-1) // the last zero of the padding is record's
	copy(inner, []byte{24, 0, 0, 1, 1, handshake})
	r := c.record(0, inner)
	c.use(c.expand("traffic upd", c.newHash().Size()))
	return r
}

// raw sends bytes as they are.
func (c *sealer) raw(b []byte) {
	c.t.Helper()
	if _, err := c.tcp.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// rawMayFail is like raw, for a connection that the server may have closed.
func (c *sealer) rawMayFail(b []byte) { _, c.err = c.tcp.Write(b) }

func (c *sealer) closeWrite() {
	try(c.t, c.tcp.CloseWrite())
}

func (c *sealer) reset() {
	try(c.t, c.tcp.SetLinger(0))
	c.tcp.Close()
}

// want reads what the server must send.
func (c *sealer) want(text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c.client, got); err != nil || string(got) != text {
		c.t.Fatalf("got %q, %v; want %q", got[:n], err, text)
	}
}

// wantEnd checks that the connection ends with close_notify or an alert whose text contains
// one of texts, which are separated by "|".
func (c *sealer) wantEnd(texts string) {
	c.t.Helper()
	rest, err := io.ReadAll(c.client)
	got := "close_notify"
	if err != nil {
		got = err.Error()
	}
	for text := range strings.SplitSeq(texts, "|") {
		if len(rest) == 0 && strings.Contains(got, text) {
			return
		}
	}
	c.t.Errorf("the connection ends with %q, %s; want %s", rest, got, texts)
}

// wantClosed reads until the connection ends in any way.
func (c *sealer) wantClosed() {
	c.t.Helper()
	if _, err := io.ReadAll(c.client); err != nil && strings.Contains(fmt.Sprint(err), "timeout") {
		c.t.Errorf("the connection stays open")
	}
}
