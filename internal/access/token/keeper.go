package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Errors returned by changes of the token file. Each may be wrapped; compare with
// errors.Is.
var (
	// ErrInvalid means that a token that is to be created breaks a rule.
	ErrInvalid = errors.New("the token cannot be created")

	// ErrNoMatch means that there is no token to revoke.
	ErrNoMatch = errors.New("no such token")

	// ErrUncertain means that the file was changed, but that the change may not survive
	// a crash of the machine. After any other error the file is unchanged.
	ErrUncertain = sharedfile.ErrUncertain
)

// A Keeper changes a token file, and records each change in the audit log first. If a
// recorded change then fails, the Keeper records the failure too.
type Keeper struct {
	Path  string
	Audit *audit.Log // nil means no audit log
	Actor string     // who makes the changes
}

// Create creates a token, adds it to the file and passes its text to handOut. If handOut
// fails, Create revokes the token. It stores the text nowhere. It sets t's Digest,
// Created and, of a kiosk, Session, and truncates Expires to whole seconds. It creates the file if necessary. ctx
// bounds the wait for a concurrent change of the file.
//
// When handOut is called the token is in force: it has been in the token file for so long
// that a server finds it there (see [filewatch.Follower.Refresh]).
func (k *Keeper) Create(ctx context.Context, t Token, now time.Time, handOut func(text string) error) (Token, error) {
	t.Created = now.UTC().Truncate(time.Second)
	if !t.Expires.IsZero() {
		t.Expires = t.Expires.UTC().Truncate(time.Second)
	}
	if err := t.check(); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	text := ""
	made, err := k.change(ctx, audit.TokenCreated, func(tokens []Token) (next, made []Token, err error) {
		if len(tokens) == MaxTokens {
			return nil, nil, fmt.Errorf("%w: the file already has the maximum of %d tokens; revoke expired ones",
				ErrInvalid, MaxTokens)
		}
		for text == "" || hasID(tokens, t.ID()) {
			text = newText()
			t.Digest = sha256.Sum256([]byte(text))
		}
		if t.Kiosk {
			t.Session = sha256.Sum256([]byte(kioskSecret(text)))
		}
		return append(tokens, t), []Token{t}, nil
	})
	if made == nil {
		return Token{}, err
	}
	time.Sleep(inForce)
	if handErr := handOut(text); handErr != nil {
		_, revokeErr := k.Revoke(ctx, func(other *Token) bool { return other.ID() == t.ID() })
		return t, errors.Join(err, fmt.Errorf("print token, which is revoked again: %w", handErr), revokeErr)
	}
	return t, err
}

// inForce is longer than the time after which every server finds a change of the token file.
const inForce = 2 * filewatch.RefreshInterval

func hasID(tokens []Token, id ID) bool {
	return slices.ContainsFunc(tokens, func(t Token) bool { return t.ID() == id })
}

// Revoke removes the tokens for which the function which returns true, and returns them.
// If there are none, or one of ids is not among them, it removes nothing and returns
// [ErrNoMatch].
func (k *Keeper) Revoke(ctx context.Context, which func(*Token) bool, ids ...ID) ([]Token, error) {
	return k.change(ctx, audit.TokenRevoked, func(tokens []Token) (next, revoked []Token, err error) {
		for i := range tokens {
			if which(&tokens[i]) {
				revoked = append(revoked, tokens[i])
			} else {
				next = append(next, tokens[i])
			}
		}
		if len(revoked) == 0 {
			return nil, nil, ErrNoMatch
		}
		for _, id := range ids {
			if !hasID(revoked, id) {
				return nil, nil, fmt.Errorf("%w: %s; nothing was revoked", ErrNoMatch, id)
			}
		}
		return next, revoked, nil
	})
}

// change replaces the tokens in the file with the result of edit, which also returns the
// tokens to record with event. Unless the file is unchanged, change returns these too.
// Changes are serialized across processes.
func (k *Keeper) change(ctx context.Context, event audit.Event, edit func([]Token) (next, changed []Token, err error)) (
	[]Token, error) {
	path := k.Path
	// Follow a symbolic link, to replace its target and not the link.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find token file: %w", err)
	}
	// The lock is a separate file, because each change replaces the token file.
	unlock, err := sharedfile.Lock(ctx, path+".lock")
	if err != nil {
		return nil, fmt.Errorf("lock token file %s: %w", path, err)
	}
	defer unlock()
	tokens, err := ReadFile(path)
	if err != nil && (event != audit.TokenCreated || !errors.Is(err, os.ErrNotExist)) {
		return nil, err
	}
	next, changed, err := edit(tokens)
	if err != nil {
		return nil, err
	}
	recorded, err := k.record(ctx, event, changed)
	if err == nil {
		if err = sharedfile.Replace(path, AppendFile(nil, next)); err == nil {
			return changed, nil
		}
		err = fmt.Errorf("write token file: %w", err)
		if errors.Is(err, ErrUncertain) {
			return changed, err
		}
	}
	for _, r := range recorded {
		r.Event = audit.TokenChangeFail
		err = errors.Join(err, k.Audit.Append(ctx, r))
	}
	return nil, err
}

// record records that tokens are about to be changed, and returns what it has recorded. If
// it fails, the caller must not change them.
func (k *Keeper) record(ctx context.Context, event audit.Event, tokens []Token) (recorded []audit.Record, err error) {
	if k.Audit == nil {
		return nil, nil
	}
	for i := range tokens {
		t := &tokens[i]
		r := audit.Record{
			Event: event, Token: t.ID().String(), Gateway: t.Gateway, Rights: t.Rights.String(),
			Device: t.Devices, Subject: string(t.Subjects), Expires: t.Expires, Actor: k.Actor,
		}
		if err := k.Audit.Append(ctx, r); err != nil {
			return recorded, err
		}
		recorded = append(recorded, r)
	}
	return recorded, nil
}
