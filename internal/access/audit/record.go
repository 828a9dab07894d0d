package audit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// An Event is the kind of a record.
type Event string

// The events. Events of the log itself are written by this package.
const (
	LogStarted      Event = "log.started"         // a file begins
	LogRecovered    Event = "log.recovered"       // a record that a crash had cut off was removed
	LogSigned       Event = "log.signed"          // a key has signed all records before this one
	ServerStarted   Event = "server.started"      // a server began to serve
	TokenCreated    Event = "token.created"       // a token is about to be created
	TokenRevoked    Event = "token.revoked"       // a token is about to be revoked
	TokenChangeFail Event = "token.change-failed" // a recorded change has failed
	TokensLoaded    Event = "tokens.loaded"       // a server has loaded a changed token file; Count: number of tokens
	TokensRefused   Event = "tokens.refused"      // a server cannot use the token file and keeps its tokens
	Exported        Event = "exported"            // readings were exported; Count: number of readings
	// exports covered by earlier records; Count: number of exports; 0 means the record covers later exports
	ExportedMore Event = "exported-more"
	Erased       Event = "erased"       // readings were erased, or values of Signs; Count: number of readings
	BackedUp     Event = "backed-up"    // the store was backed up
	AuthRefused  Event = "auth.refused" // a request was rejected for its credentials
	// further rejected requests since the last such record; Count: number of requests
	AuthRefusedMore Event = "auth.refused-more"
	SubjectAssigned Event = "subject.assigned" // a device is about to be assigned to a subject, from From to To
	// the end of an assignment that begins at From is about to be set to To
	SubjectEnded  Event = "subject.ended"
	SubjectFailed Event = "subject.change-failed" // a recorded change of an assignment has failed
	// what was acknowledged from From to To may be missing in the database for good
	LossReported  Event = "loss.reported"
	LossConfirmed Event = "loss.confirmed" // such reports are about to be ended
	// a database without what was acknowledged from From on is about to be accepted
	RestoreAccepted Event = "restore.accepted"
)

// A Reason is why credentials were rejected.
type Reason uint8

// The reasons.
const (
	NoCredentials Reason = 1 + iota // no credentials
	Malformed                       // not a token, or more than one
	Unknown                         // unknown or revoked token
	Expired                         // expired token
	NoRight                         // valid, but lacks the required right
	NotCovered                      // valid, but not for this device
	// an invalid client certificate, or one that names no gateway or another one than the token
	BadCertificate
	Contradictions // valid, but has contradicted too many readings of other gateways
	Undecided      // a token whose key is not known yet
	OtherGateway   // valid, but the client or a reading names another gateway
	NumReasons     // one more than the largest Reason
)

var reasonNames = [NumReasons]string{
	NoCredentials:  "no-credentials",
	Malformed:      "malformed",
	Unknown:        "unknown",
	Expired:        "expired",
	NoRight:        "no-right",
	NotCovered:     "not-covered",
	BadCertificate: "bad-certificate",
	Contradictions: "contradictions",
	Undecided:      "undecided",
	OtherGateway:   "other-gateway",
}

// String returns the name in the log, such as "expired".
func (r Reason) String() string {
	if r >= NumReasons {
		return ""
	}
	return reasonNames[r]
}

// quota returns 1 if the credentials were valid, and otherwise 0.
func (r Reason) quota() int {
	switch r {
	case NoRight, NotCovered, Contradictions, OtherGateway:
		return 1
	}
	return 0
}

// A Record is one event. Zero fields are omitted.
type Record struct {
	Event   Event
	Token   string      // ID of a token: up to 64 bytes of a name
	Gateway vitals.Name // the token's holder, or the one whose readings were erased
	Rights  string      // the token's, such as "write,read"
	Device  vitals.Name // device, or prefix of devices
	Subject string      // patient, or the subjects of a token, separated by commas; at most 16
	Signs   string      // erased signs, separated by commas, at most MaxSignsBytes; empty means all
	Shared  bool        // of the erased readings of Gateway, also those that another gateway has completed
	Expires time.Time   // of the token
	From    time.Time   // start of the readings' time range, inclusive
	To      time.Time   // end of the time range, exclusive
	Count   int64       // see the Event
	Reason  Reason      // with AuthRefused
	Peer    netip.Addr  // address of the client
	// who did it: a user of the machine, or "token:ID" or "oidc:SUBJECT ISSUER"; at most MaxActorBytes of printable ASCII
	// without " and \
	Actor string

	counts [NumReasons]uint64 // with AuthRefusedMore
	prev   *chain             // with LogStarted
	signer *Key               // with LogSigned
}

var errRecord = errors.New("invalid record of the audit log")

// check rejects a record that could break the format of a line.
func (r *Record) check() error {
	switch {
	case r.Event == "" || r.Reason >= NumReasons:
		return errRecord
	case !plain(string(r.Event)) || !plain(r.Token) || !plain(r.Rights) || !printable(r.Actor) ||
		len(r.Actor) > MaxActorBytes:
		return errRecord
	case !printable(r.Signs) || len(r.Signs) > MaxSignsBytes:
		return errRecord
	case strings.Count(r.Subject, ",") >= 16:
		return errRecord
	}
	for subject := range strings.SplitSeq(r.Subject, ",") {
		if !plain(subject) {
			return errRecord
		}
	}
	return nil
}

// Bounds of texts in a Record.
const (
	MaxActorBytes = 640
	MaxSignsBytes = 512
)

func plain(text string) bool { return len(text) <= 64 && printable(text) }

func printable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// A chain is the SHA-256 that links a record to those before it.
type chain [sha256.Size]byte

// next returns the chain of the record whose line begins with head.
func (c *chain) next(head []byte) chain {
	h := sha256.New()
	h.Write(c[:]) // a hash.Hash never returns an error
	h.Write(head)
	return chain(h.Sum(nil))
}

const (
	chainKey  = `,"chain":"`
	chainTail = len(chainKey) + 2*sha256.Size + len("\"}")
	timeForm  = "2006-01-02T15:04:05.000Z"
)

// appendLine appends the line of r, as the record after before, to dst.
func (r *Record) appendLine(dst []byte, before mark, now time.Time) []byte {
	start := len(dst)
	dst = strconv.AppendUint(append(dst, `{"seq":`...), before.seq+1, 10)
	text := func(key, value string) {
		if value != "" {
			dst = append(append(dst, `,"`...), key...)
			dst = append(append(append(dst, `":"`...), value...), '"')
		}
	}
	timestamp := func(key string, t time.Time) {
		if !t.IsZero() {
			text(key, t.UTC().Format(timeForm))
		}
	}
	timestamp("time", now)
	text("event", string(r.Event))
	text("token", r.Token)
	text("gateway", r.Gateway.String())
	text("rights", r.Rights)
	text("device", r.Device.String())
	text("subject", r.Subject)
	text("signs", r.Signs)
	if r.Shared {
		dst = append(dst, `,"shared":true`...)
	}
	timestamp("expires", r.Expires)
	timestamp("from", r.From)
	timestamp("to", r.To)
	if r.Count != 0 {
		dst = strconv.AppendInt(append(dst, `,"count":`...), r.Count, 10)
	}
	text("reason", r.Reason.String())
	if r.Peer.IsValid() {
		text("peer", r.Peer.Unmap().WithZone("").String())
	}
	text("actor", r.Actor)
	for reason, n := range r.counts {
		if n > 0 {
			dst = append(append(append(dst, `,"`...), strings.ReplaceAll(Reason(reason).String(), "-", "_")...), `":`...)
			dst = strconv.AppendUint(dst, n, 10)
		}
	}
	if r.prev != nil {
		text("prev", hex.EncodeToString(r.prev[:]))
	}
	if r.signer != nil {
		text("key", r.signer.ID())
		text("signature", base64.StdEncoding.EncodeToString(r.signer.sign(before)))
	}
	sum := before.chain.next(dst[start:])
	dst = hex.AppendEncode(append(dst, chainKey...), sum[:])
	return append(dst, "\"}\n"...)
}

// Actor returns the name of this process's user, for [Record].Actor.
func Actor() string {
	uid := fmt.Sprintf("uid %d", os.Getuid())
	u, err := user.Current()
	if err != nil || !printable(u.Username) || strings.Contains(u.Username, " ") {
		return uid
	}
	if text := fmt.Sprintf("%s (%s)", u.Username, uid); len(text) <= 64 {
		return text
	}
	return uid
}

// ActorResumed is the actor of an erasure that is resumed after a restart, or by another server; who
// requested it is in an earlier record.
const ActorResumed = "resumed"
