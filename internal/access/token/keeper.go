package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

// A Keeper changes a token file as [Create] and [Revoke] do, and records each change in
// the audit log first. If a recorded change then fails, the Keeper records the failure
// too.
type Keeper struct {
	Path  string
	Audit *audit.Log // nil means no audit log
	Actor string     // who makes the changes
}

// Create creates a token and passes its text to handOut. If handOut fails, Create revokes
// the token. It stores the text nowhere.
//
// When handOut is called the token is in force: it has been in the token file for so long
// that a server finds it there (see [filewatch.Follower.Refresh]).
func (k *Keeper) Create(ctx context.Context, spec Token, now time.Time, handOut func(text string) error) (Token, error) {
	var made []audit.Record
	text, t, err := Create(ctx, k.Path, spec, now, func(t Token) error { return k.record(ctx, &made, audit.TokenCreated, t) })
	err = k.settle(ctx, made, err)
	if text == "" {
		return t, err
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

// Revoke removes the tokens for which the function which returns true, and returns them.
// If there are none, or one of ids is not among them, it removes nothing and returns
// [ErrNoMatch].
func (k *Keeper) Revoke(ctx context.Context, which func(*Token) bool, ids ...ID) ([]Token, error) {
	var made []audit.Record
	revoked, err := Revoke(ctx, k.Path, which, func(revoked []Token) error {
		for _, id := range ids {
			if !hasID(revoked, id) {
				return fmt.Errorf("%w: %s; nothing was revoked", ErrNoMatch, id)
			}
		}
		return k.record(ctx, &made, audit.TokenRevoked, revoked...)
	})
	return revoked, k.settle(ctx, made, err)
}

// record records that tokens are about to be changed. If it fails, the caller must not
// change them.
func (k *Keeper) record(ctx context.Context, made *[]audit.Record, event audit.Event, tokens ...Token) error {
	if k.Audit == nil {
		return nil
	}
	for i := range tokens {
		t := &tokens[i]
		r := audit.Record{
			Event: event, Token: t.ID().String(), Gateway: t.Gateway, Rights: t.Rights.String(),
			Device: t.Devices, Subject: string(t.Subjects), Expires: t.Expires, Actor: k.Actor,
		}
		if err := k.Audit.Append(ctx, r); err != nil {
			return err
		}
		*made = append(*made, r)
	}
	return nil
}

// settle returns err. If err means that the file was not changed, it first records that
// the changes in made have failed.
func (k *Keeper) settle(ctx context.Context, made []audit.Record, err error) error {
	if err != nil && !errors.Is(err, ErrUncertain) {
		for _, r := range made {
			r.Event = audit.TokenChangeFail
			err = errors.Join(err, k.Audit.Append(ctx, r))
		}
	}
	return err
}
