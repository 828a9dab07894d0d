package token

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of a change. Each may be wrapped; compare with errors.Is.
var (
	// ErrSpec means that a token cannot be made as it was asked for.
	ErrSpec = errors.New("token: cannot be made")

	// ErrNoMatch means that no token is the one to revoke.
	ErrNoMatch = errors.New("token: no such token")

	// ErrUncertain means that a change was made, and that it is not known whether
	// it outlasts a crash of the machine. After any other error the file is as it
	// was.
	ErrUncertain = sharedfile.ErrUncertain
)

// A Spec says what kind of token to make.
type Spec struct {
	Gateway vitals.Name
	Rights  Rights
	Devices vitals.Name // prefix; zero: all
	Expires time.Time   // cut to whole seconds; zero: never
	Limit   Limit

	// Before is called with the new token when everything is checked, right
	// before the file is changed, so that an audit trail has the change before it
	// is made. An error of it ends Create. May be nil.
	Before func(Token) error
}

// Create makes a token, adds it to the file at path, which is made where it is
// missing, and returns the text to hand out. The text is kept nowhere. ctx bounds
// the wait for another change of the file.
func Create(ctx context.Context, path string, spec Spec, now time.Time) (text string, t Token, err error) {
	t = Token{
		Gateway: spec.Gateway,
		Rights:  spec.Rights,
		Devices: spec.Devices,
		Created: now.UTC().Truncate(time.Second),
		Limit:   spec.Limit,
	}
	if !spec.Expires.IsZero() {
		t.Expires = spec.Expires.UTC().Truncate(time.Second)
	}
	if err := t.check(); err != nil {
		return "", Token{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	err = change(ctx, path, true, func(tokens []Token) ([]Token, error) {
		if len(tokens) == MaxTokens {
			return nil, fmt.Errorf("%w: the file holds %d, the most it may; revoke those that have expired", ErrSpec, MaxTokens)
		}
		for {
			text = newText()
			if t.Digest, err = DigestOf(text); err != nil {
				return nil, err
			}
			if !hasID(tokens, t.ID()) {
				break
			}
		}
		if spec.Before != nil {
			if err := spec.Before(t); err != nil {
				return nil, err
			}
		}
		return append(tokens, t), nil
	})
	if err != nil && !errors.Is(err, ErrUncertain) {
		return "", Token{}, err
	}
	return text, t, err
}

func hasID(tokens []Token, id ID) bool {
	for i := range tokens {
		if tokens[i].ID() == id {
			return true
		}
	}
	return false
}

// Revoke removes the tokens that which reports from the file at path and returns
// them. It returns [ErrNoMatch] if there are none. before is called like
// [Spec.Before], and may be nil.
func Revoke(ctx context.Context, path string, which func(*Token) bool, before func([]Token) error) ([]Token, error) {
	var revoked []Token
	err := change(ctx, path, false, func(tokens []Token) ([]Token, error) {
		var kept []Token
		for i := range tokens {
			if which(&tokens[i]) {
				revoked = append(revoked, tokens[i])
			} else {
				kept = append(kept, tokens[i])
			}
		}
		if len(revoked) == 0 {
			return nil, ErrNoMatch
		}
		if before != nil {
			if err := before(revoked); err != nil {
				return nil, err
			}
		}
		return kept, nil
	})
	if err != nil && !errors.Is(err, ErrUncertain) {
		return nil, err
	}
	return revoked, err
}

// change replaces the token file by what edit makes of its tokens. While it runs,
// no other change does, in whichever process.
func change(ctx context.Context, path string, create bool, edit func([]Token) ([]Token, error)) (err error) {
	// A link is followed, so that it is its target that is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("find token file: %w", err)
	}
	// The lock is a file of its own, because the file that it protects is
	// replaced by each change.
	unlock, err := sharedfile.Lock(ctx, path+".lock")
	if err != nil {
		return fmt.Errorf("lock token file %s: %w", path, err)
	}
	defer unlock()
	tokens, err := ReadFile(path)
	if create && errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if tokens, err = edit(tokens); err != nil {
		return err
	}
	if err := sharedfile.Replace(path, AppendFile(nil, tokens)); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	return nil
}
