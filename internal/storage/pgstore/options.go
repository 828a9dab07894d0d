package pgstore

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Connections of a store.
const (
	Lanes   = 4 // that a group is divided among
	Readers = 8 // for reading, at most
)

// Defaults of [Options].
const (
	DefaultMaxDevices = 1_000_000
	DefaultTimeout    = 10 * time.Second
	DefaultSchema     = "pulsegate"

	maxSealEvery       = 8 * time.Hour
	DefaultSealAtLeast = 64

	DefaultRememberBytes = 64 << 20
)

// Options configures a store.
type Options struct {
	// DSN is the address of the database, as a URL or as keywords and values, as libpq takes it, perhaps with several
	// hosts. The password may come from PGPASSFILE. Each connection reads the files that it names, or that the
	// environment does, again.
	DSN string

	// Single permits a server without synchronous standbys. Otherwise Open, each later connection
	// and each transaction refuse a server whose synchronous_standby_names is empty.
	Single bool

	// MaxDevices bounds the number of devices of all nodes. A reading of a further device
	// gets the outcome storage.TooManyDevices. 0 means DefaultMaxDevices.
	MaxDevices int

	// Move is set by a process that moves the store from or to the database.
	Move Move

	// Existing makes Open return an error if the database has no store.
	Existing bool

	// Signs has the signs of a user's own that this node accepts. Others that the database has are
	// retired in this node only. Open returns an error of [vitals.Signs.Define].
	Signs []vitals.Definition

	// Timeout bounds the time for which Append and a removal try to settle an unknown outcome
	// or to reach the database. 0 means DefaultTimeout.
	Timeout time.Duration

	// SealAfter is the age, by measured time, from which on readings are moved from rows to segments, which take a tenth
	// of the bytes. 0 means never.
	SealAfter time.Duration

	// SealEvery is how often all devices are looked through for readings to be sealed. 0 means eight times SealAfter, and
	// 8 hours at most.
	SealEvery time.Duration

	// SealAtLeast is the smallest number of readings of a segment, unless they have waited for a week. 0 means
	// DefaultSealAtLeast.
	SealAtLeast int

	// ChangesKeep is how long events are kept: assignments, erasures, expiries and definitions of signs. The event of an
	// erasure has the name of its device. 0 keeps none, and makes all positions unknown whenever there would have been
	// one.
	ChangesKeep time.Duration

	// Schema is the name of the schema. "" means DefaultSchema.
	Schema string

	// Remember is for how long the store keeps what it has acknowledged, so that it can repair a database that has
	// forgotten it. 0 means not at all: such a database is refused. RememberBytes bounds it; 0 means DefaultRememberBytes.
	Remember      time.Duration
	RememberBytes int64

	// RememberDir is a directory that also keeps it, so that it survives a restart. No other process may use it. "" means
	// none.
	RememberDir string

	// OnLoss is called with each loss that this server reports, in the goroutine that repairs the database. May be nil.
	OnLoss func(Loss)

	// Log receives log records; nil disables logging.
	Log *slog.Logger

	// OnCertificates is called with when the first certificate of each use expires, when they are read the first time and
	// when that changes. It may be called by several goroutines. May be nil.
	OnCertificates func(Certificates)

	// Dial replaces net.Dialer, for tests. May be nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	o.MaxDevices = cmp.Or(o.MaxDevices, DefaultMaxDevices)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Schema = cmp.Or(o.Schema, DefaultSchema)
	o.SealEvery = cmp.Or(o.SealEvery, min(max(8*o.SealAfter, time.Second), maxSealEvery))
	o.SealAtLeast = cmp.Or(o.SealAtLeast, DefaultSealAtLeast)
	o.RememberBytes = cmp.Or(o.RememberBytes, DefaultRememberBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	return o
}

// schemaName matches the names that need no quotes.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// errPasswordInDSN keeps passwords out of command lines, which every user of the machine can read.
var errPasswordInDSN = errors.New(
	"the address of the database contains a password; put it into a file that PGPASSFILE names")

// CheckDSN returns an error if dsn is not the address of a database, or contains a password.
// The error does not quote dsn.
func CheckDSN(dsn string) error {
	_, err := parse(dsn)
	return err
}

// parse parses dsn. Its errors do not quote it, because it may contain a password.
func parse(dsn string) (*pgxpool.Config, error) {
	if err := checkFiles(dsn); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("the address of the database names a file that cannot be read: %w", file)
	}
	if err != nil {
		return nil,
			errors.New("the address of the database is not valid; it should be like postgres://user@host1,host2/database")
	}
	// pgx has read the password from PGPASSFILE by now; ask it about the address alone.
	if hasPassword(dsn) {
		return nil, errPasswordInDSN
	}
	return cfg, nil
}

// passwordIn matches a password in either form of an address: of the role, or of its key.
var passwordIn = regexp.MustCompile(`(?i)(^[a-z]+://[^/@]*:[^/@]*@)|((^|[\s?&'])(ssl)?password\s*=)`)

func hasPassword(dsn string) bool {
	u, err := url.Parse(dsn)
	escaped := err == nil && (u.Query().Has("password") || u.Query().Has("sslpassword"))
	return escaped || passwordIn.MatchString(dsn)
}

// Times of connections.
const (
	connectTimeout  = 3 * time.Second
	maxConnLifetime = 5 * time.Minute // and the checks of connect are made again
)

// writers is the largest number of connections for writing: some more than lanes, for
// registering devices and removing readings.
const writers = Lanes + 2

// applicationName is the name of connections in pg_stat_activity.
const applicationName = "pulsegate"

// pools returns the configurations of the pools for writing and for reading.
func (o *Options) pools(s *database) (write, read *pgxpool.Config, err error) {
	if !schemaName.MatchString(o.Schema) {
		return nil, nil, fmt.Errorf("schema %q is not a name of lower-case letters, digits and _", o.Schema)
	}
	write, err = parse(o.DSN)
	if err != nil {
		return nil, nil, err
	}
	if write.ConnConfig.ConnectTimeout == 0 {
		write.ConnConfig.ConnectTimeout = connectTimeout
	}
	write.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if err := o.renew(c); err != nil {
			return err
		}
		return o.note(s, c)
	}
	write.ConnConfig.ValidateConnect = recall{s}.validate
	write.PrepareConn = recall{s}.check
	write.ConnConfig.RuntimeParams["application_name"] = applicationName
	write.MaxConnLifetime, write.MaxConnLifetimeJitter = maxConnLifetime, maxConnLifetime/5
	write.MinConns, write.MinIdleConns = 0, 0
	// These may be in the address, and the store relies on them.
	write.HealthCheckPeriod = time.Minute
	write.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	write.ConnConfig.StatementCacheCapacity = max(write.ConnConfig.StatementCacheCapacity, 64)
	read = write.Copy()
	read.MaxConns = Readers
	read.ConnConfig.OnNotice = noteWarning // of proofs
	read.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return connectedToRead(ctx, s, conn) }
	read.ConnConfig.DialFunc = noCancel(o.Dial)
	write.MaxConns = writers + 1 // and the sealer
	write.AfterConnect = s.connectedToWrite
	write.ConnConfig.DialFunc = noCancel(o.Dial)
	write.ConnConfig.OnNotice = noteWarning
	return write, read, nil
}

// Certificates is when the first certificate of each use expires. The zero time means that there is none.
type Certificates struct {
	CA     time.Time // of the CAs that verify the database's certificate: sslrootcert
	Client time.Time // of this server's chain: sslcert
}

// note calls OnCertificates if the certificates of a configuration are others than before.
func (o *Options) note(s *database, c *pgx.ConnConfig) error {
	var now Certificates
	for _, f := range append(c.Fallbacks, &pgconn.FallbackConfig{TLSConfig: c.TLSConfig}) {
		if f.TLSConfig == nil {
			continue
		}
		for _, pair := range f.TLSConfig.Certificates {
			now.Client = earliest(pair.Certificate)
		}
		if f.TLSConfig.RootCAs == nil {
			continue
		}
		text, err := os.ReadFile(rootFile.path(o.DSN))
		if err != nil {
			return fmt.Errorf("read CAs of the database: %w", err)
		}
		var cas [][]byte
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			cas = append(cas, block.Bytes)
		}
		now.CA = earliest(cas)
	}
	if before := s.certificates.Swap(&now); o.OnCertificates != nil && (before == nil || *before != now) {
		o.OnCertificates(now)
	}
	return nil
}

// earliest returns when the first of some certificates expires. pgx skips what is not one.
func earliest(all [][]byte) (first time.Time) {
	for _, der := range all {
		if c, err := x509.ParseCertificate(der); err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	return first
}

// A fileSetting names a file that pgx reads and does not return: in an address, in the environment, or libpq's default.
type fileSetting struct {
	name, variable string
	home           []string       // in the user's home directory
	in             *regexp.Regexp // matches the setting in an address of keywords and values
}

func newFileSetting(name string, home ...string) fileSetting {
	in := regexp.MustCompile(`(?:^|\s)` + name + `\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))`)
	return fileSetting{name, "PG" + strings.ToUpper(name), home, in}
}

var (
	rootFile = newFileSetting("sslrootcert", ".postgresql", "root.crt")

	fileSettings = []fileSetting{
		rootFile, newFileSetting("sslcert", ".postgresql", "postgresql.crt"),
		newFileSetting("sslkey", ".postgresql", "postgresql.key"),
		newFileSetting("passfile", ".pgpass"), newFileSetting("servicefile", ".pg_service.conf"),
	}
)

// path returns the file.
func (f fileSetting) path(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		for part := range strings.SplitSeq(u.RawQuery, "&") {
			if text, ok := strings.CutPrefix(part, f.name+"="); ok {
				file, _ := url.PathUnescape(text) // a + is no space; pgx rejects what is not valid
				return file
			}
		}
	}
	if m := f.in.FindStringSubmatch(dsn); m != nil {
		return strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(m[1] + m[2])
	}
	home, _ := os.UserHomeDir()
	return cmp.Or(os.Getenv(f.variable), filepath.Join(append([]string{home}, f.home...)...))
}

// checkFiles returns an error if a file of an address is a FIFO or a device, which pgx would read for ever.
func checkFiles(dsn string) error {
	for _, f := range fileSettings {
		path := f.path(dsn)
		if info, err := os.Stat(path); err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice) != 0 && path != os.DevNull {
			return fmt.Errorf("%s of the database: %s: %w", f.name, path, sharedfile.ErrNotRegular)
		}
	}
	return nil
}

// renew gives a connection that is about to be made the password and the certificates that the files have now.
func (o *Options) renew(c *pgx.ConnConfig) error {
	now, err := parse(o.DSN)
	if err == nil {
		c.Password, c.TLSConfig, c.Fallbacks = now.ConnConfig.Password, now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
	}
	return err
}
