package token

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Errors returned by changes of the token file. Each may be wrapped; compare with
// errors.Is.
var (
	// ErrInvalid means that a token that is to be created breaks a rule.
	ErrInvalid = errors.New("token: cannot be created")

	// ErrNoMatch means that there is no token to revoke.
	ErrNoMatch = errors.New("token: no such token")

	// ErrUncertain means that the file was changed, but that the change may not survive
	// a crash of the machine. After any other error the file is unchanged.
	ErrUncertain = sharedfile.ErrUncertain
)

// Create creates a token, adds it to the file at path and returns its text, which is
// stored nowhere. It sets t's Digest and Created, and truncates Expires to whole seconds. It
// creates the file if necessary. ctx bounds the wait for a concurrent change of the file.
//
// If before is not nil, Create calls it with the new token after all checks, right before
// the file is changed, so that an audit log can record the change first. If before returns
// an error, Create changes nothing and returns that error.
func Create(ctx context.Context, path string, t Token, now time.Time, before func(Token) error) (text string, made Token, err error) {
	t.Created = now.UTC().Truncate(time.Second)
	if !t.Expires.IsZero() {
		t.Expires = t.Expires.UTC().Truncate(time.Second)
	}
	if err := t.check(); err != nil {
		return "", Token{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	err = change(ctx, path, true, func(tokens []Token) ([]Token, error) {
		if len(tokens) == MaxTokens {
			return nil, fmt.Errorf("%w: the file already has the maximum of %d tokens; revoke expired ones", ErrInvalid, MaxTokens)
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
		if before != nil {
			err = before(t)
		}
		return append(tokens, t), err
	})
	if err != nil && !errors.Is(err, ErrUncertain) {
		return "", Token{}, err
	}
	return text, t, err
}

func hasID(tokens []Token, id ID) bool {
	return slices.ContainsFunc(tokens, func(t Token) bool { return t.ID() == id })
}

// Revoke removes the tokens for which the function which returns true from the file at
// path, and returns them. It returns [ErrNoMatch] if there are none. before is called
// as by Create, and may be nil.
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

// change replaces the tokens in the file with the result of edit. Changes are
// serialized across processes.
func change(ctx context.Context, path string, create bool, edit func([]Token) ([]Token, error)) (err error) {
	// Follow a symbolic link, to replace its target and not the link.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("find token file: %w", err)
	}
	// The lock is a separate file, because each change replaces the token file.
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
