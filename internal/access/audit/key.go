package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// # Signatures
//
// The chain has no key: anyone who can write to the directory can compute another one.
// A [Key], which is kept elsewhere, regularly signs the chain in a record of the log.
// Signed records cannot be replaced without the key.
//
// The log could still be truncated after an older signature. So the newest signature is
// also kept in the head file beside the key.

// A Key signs logs with Ed25519 (RFC 8032), or is the public half of one that does.
type Key struct {
	private ed25519.PrivateKey // nil means only the public half
	public  ed25519.PublicKey
	path    string
	clients bool // signs a log of clients
}

// ClientsSuffix ends the paths of a log of clients and of its head file.
const ClientsSuffix = ".clients"

// ForClients returns the key for the log of clients, which lies beside the log of operators. The signed texts differ,
// so neither log passes for the other. A nil key stays nil.
func (k *Key) ForClients() *Key {
	if k == nil {
		return nil
	}
	return &Key{k.private, k.public, k.path + ClientsSuffix, true}
}

// Types of PEM blocks.
const (
	pemPrivate = "PRIVATE KEY" // PKCS #8
	pemPublic  = "PUBLIC KEY"  // PKIX
)

// maxKeyBytes bounds the size of a key file and of a head file.
const maxKeyBytes = 16 << 10

// CreateKey creates a key in a new file at path, which only its owner can read.
func CreateKey(path string) (*Key, error) {
	public, private, _ := ed25519.GenerateKey(nil) // never fails: crypto/rand ends the process instead
	der, _ := x509.MarshalPKCS8PrivateKey(private) // fails for other types of keys only
	if err := writeNewFile(path, pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der})); err != nil {
		return nil, fmt.Errorf("create audit key: %w", err)
	}
	return &Key{private: private, public: public, path: path}, nil
}

// writeNewFile durably creates a file.
func writeNewFile(path string, data []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = sharedfile.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// LoadKey reads the key at path. A public key can only verify.
func LoadKey(path string) (*Key, error) {
	text, err := sharedfile.Read(path, maxKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("read audit key: %w", err)
	}
	k := &Key{path: path}
	block, rest := pem.Decode(text)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("read audit key %s: it does not contain exactly one key in PEM", path)
	}
	var key any
	switch block.Type {
	case pemPrivate:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		k.private, _ = key.(ed25519.PrivateKey)
		if k.private != nil {
			k.public, _ = k.private.Public().(ed25519.PublicKey)
		}
	case pemPublic:
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
		k.public, _ = key.(ed25519.PublicKey)
	}
	if err != nil || k.public == nil {
		return nil, fmt.Errorf("read audit key %s: it is not an Ed25519 key", path)
	}
	return k, nil
}

// PublicPEM returns the public half, which suffices to verify a log.
func (k *Key) PublicPEM() []byte {
	der, _ := x509.MarshalPKIXPublicKey(k.public) // fails for other types of keys only
	return pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: der})
}

// ID returns the name of the key in records: the first 8 hexadecimal digits of the
// SHA-256 of its public half.
func (k *Key) ID() string {
	sum := sha256.Sum256(k.public)
	return hex.EncodeToString(sum[:4])
}

// message returns the bytes that a signature of m covers.
func (k *Key) message(m mark) []byte {
	text := []byte("pulsegate audit log 1\x00")
	if k.clients {
		text = []byte("pulsegate audit log of clients 1\x00")
	}
	return append(binary.BigEndian.AppendUint64(text, m.seq), m.chain[:]...)
}

func (k *Key) sign(m mark) []byte { return ed25519.Sign(k.private, k.message(m)) }

func (k *Key) signed(m mark, signature []byte) bool {
	return len(signature) == ed25519.SignatureSize && ed25519.Verify(k.public, k.message(m), signature)
}

// headFile returns the path of the head file, which names the newest signed record:
//
//	pulsegate-audit-head 1
//	record 17
//	chain 0c62…
//	signature 5Jv…
//
// The signature covers that record and all before it.
func (k *Key) headFile() string { return k.path + ".head" }

// HasHead reports whether there is a head file. It is false for a nil key.
func (k *Key) HasHead() bool {
	if k == nil {
		return false
	}
	_, err := os.Stat(k.headFile())
	return err == nil
}

const headText = "pulsegate-audit-head 1\nrecord %d\nchain %x\nsignature %s\n"

// writeHead writes m, which was signed, to the head file.
func (k *Key) writeHead(d disk, m mark) error {
	text := fmt.Sprintf(headText, m.seq, m.chain[:], base64.StdEncoding.EncodeToString(k.sign(m)))
	if err := d.replace(k.headFile(), []byte(text)); err != nil {
		return fmt.Errorf("write %s: %w", k.headFile(), err)
	}
	return nil
}

// errHead means that the head file has no valid signature of the key.
var errHead = errors.New("the head file beside the key was damaged or changed")

// readHead reads the head file. ok is false if there is none.
func (k *Key) readHead() (m mark, ok bool, err error) {
	text, err := sharedfile.Read(k.headFile(), maxKeyBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("read %s: %w", k.headFile(), err)
	}
	var sum []byte
	var encoded string
	_, scanErr := fmt.Sscanf(string(text), headText, &m.seq, &sum, &encoded)
	signature, decodeErr := base64.StdEncoding.DecodeString(encoded)
	copy(m.chain[:], sum)
	if scanErr != nil || decodeErr != nil || len(sum) != len(m.chain) || !k.signed(m, signature) ||
		string(text) != fmt.Sprintf(headText, m.seq, m.chain[:], encoded) {
		return mark{}, false, fmt.Errorf("%w: %s", errHead, k.headFile())
	}
	return m, true, nil
}

// known returns the newest record of the log at path that k has signed. It is zero if
// there is none.
func (k *Key) known(path string) (mark, error) {
	if k.private == nil {
		return mark{}, fmt.Errorf("audit key %s: a public key cannot sign", k.path)
	}
	m, ok, err := k.readHead()
	if ok || err != nil {
		return m, err
	}
	report, err := VerifyLog(path, k)
	if errors.Is(err, errUnsigned) || errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil // the key is new, or the log does not exist yet
	}
	if err == nil {
		err = fmt.Errorf("%w: %s is missing, but the key has signed record %d", errHead, k.headFile(), report.Signed)
	}
	return mark{}, err
}

// signLocked signs the log if it has grown since the last signature.
func (l *Log) signLocked() error {
	k := l.opt.Key
	if k == nil {
		return nil
	}
	if l.journal.at.seq != l.signed.seq {
		if err := l.journal.write([]Record{{Event: LogSigned, signer: k}}); err != nil {
			return fmt.Errorf("sign audit log: %w", err)
		}
		l.signed = l.journal.at.mark
	}
	if l.head == l.signed.seq {
		return nil
	}
	if err := k.writeHead(l.opt.disk, l.signed); err != nil {
		return fmt.Errorf("sign audit log: %w", err)
	}
	l.head = l.signed.seq
	return nil
}
