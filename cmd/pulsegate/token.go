package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Make a token and print it, once. It is in force on a running server within a second."`
	List   tokenListCommand   `cmd:"" help:"List the tokens by their IDs. The tokens themselves are kept nowhere."`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke tokens. A running server refuses them within a second."`
}

// tokenChange are the flags of commands that change tokens.
type tokenChange struct {
	File  string `default:"pulsegate-tokens" env:"PULSEGATE_TOKENS" type:"path" help:"Token file."`
	Audit string `default:"${default_audit}" env:"PULSEGATE_AUDIT" help:"Audit log. Empty: none."`
}

// changeTimeout bounds the wait for other commands that change the same files.
const changeTimeout = 30 * time.Second

// What a token is for comes from the command line alone: a variable that was set
// for another command must not widen, or revoke, anything.
type tokenCreateCommand struct {
	tokenChange `embed:""`

	Gateway string `env:"-" required:"" placeholder:"NAME" help:"Gateway that the token is for; readings that come with it are that gateway's. Of a token that only reads: a name for who holds it."`
	Rights  string `env:"-" default:"write" placeholder:"LIST" help:"Any of write, read and admin, with commas between."`
	Expires string `env:"-" placeholder:"90d" help:"When the token ends: after a time such as 90d or 12h, or at one in RFC 3339. Default: never."`
	Devices string `env:"-" placeholder:"PREFIX" help:"Only devices whose names begin so, for writing as for reading. Default: all."`
	Rate    int    `env:"-" placeholder:"N" help:"Readings a second in the long run. Default: what the server's settings say."`
	Burst   int    `env:"-" placeholder:"N" help:"Readings at once after a silence. Default: those of a minute."`
}

func (c *tokenCreateCommand) Run(ctx context.Context, std stdio) error {
	now := time.Now()
	spec, err := c.spec(now)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	trail, err := c.openTrail(ctx)
	if err != nil {
		return err
	}
	spec.Before = func(t token.Token) error { return trail.changing(ctx, audit.TokenCreated, t) }
	text, made, err := token.Create(ctx, c.File, spec, now)
	err = trail.changed(ctx, err)
	if text == "" {
		return errors.Join(usageOf(err), trail.close())
	}
	// The token exists from here on. If nobody gets to see it, it must not stay.
	if _, printErr := fmt.Fprintln(std.out, text); printErr != nil {
		_, revokeErr := token.Revoke(ctx, c.File, func(t *token.Token) bool { return t.ID() == made.ID() },
			func(revoked []token.Token) error { return trail.changing(ctx, audit.TokenRevoked, revoked...) })
		return errors.Join(err, fmt.Errorf("print token, which is revoked again: %w", printErr), trail.changed(ctx, revokeErr), trail.close())
	}
	fmt.Fprintf(std.err, "Token %s: %s. It is kept nowhere and cannot be shown again.\n", made.ID(), describe(&made))
	return errors.Join(err, trail.close())
}

// spec turns the flags into what to make.
func (c *tokenCreateCommand) spec(now time.Time) (spec token.Spec, err error) {
	if err := notToken("--file", c.File); err != nil {
		return spec, err
	}
	if spec.Gateway, err = vitals.ParseName(c.Gateway); err != nil {
		return spec, usageError{"--gateway: " + err.Error()}
	}
	if spec.Rights, err = token.ParseRights(c.Rights); err != nil {
		return spec, usageError{"--rights: " + err.Error()}
	}
	if c.Devices != "" {
		if spec.Devices, err = vitals.ParseName(c.Devices); err != nil {
			return spec, usageError{"--devices: " + err.Error()}
		}
	}
	if spec.Expires, err = parseEnd(c.Expires, now); err != nil {
		return spec, err
	}
	spec.Limit = token.LimitOf(c.Rate, c.Burst)
	return spec, nil
}

// parseEnd returns when a token ends that is made now; the zero time for "".
func parseEnd(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36_500 {
			return now.AddDate(0, 0, n), nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= time.Second {
		return now.Add(d), nil
	} else if ms, err := vitals.ParseRFC3339(text); err == nil {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, usageError{"--expires is neither a time such as 90d or 12h nor RFC 3339 with zone"}
}

// usageOf makes an error that the flags have caused one of usage.
func usageOf(err error) error {
	if errors.Is(err, token.ErrSpec) {
		return usageError{err.Error()}
	}
	return err
}

// describe says what a token is for.
func describe(t *token.Token) string {
	text := fmt.Sprintf("%s by %s", t.Rights, t.Gateway)
	if !t.Devices.IsZero() {
		text += fmt.Sprintf(", devices %s*", t.Devices)
	}
	if t.Limit != (token.Limit{}) {
		text += fmt.Sprintf(", %d readings a second, %d at once", t.Limit.PerSecond, t.Limit.Burst)
	}
	if t.Expires.IsZero() {
		return text + ", without an end"
	}
	return text + ", until " + t.Expires.Format(time.RFC3339)
}

type tokenListCommand struct {
	File string `default:"pulsegate-tokens" env:"PULSEGATE_TOKENS" type:"path" help:"Token file."`
	JSON bool   `help:"Print one JSON object a line."`
}

// A listedToken is what list shows.
type listedToken struct {
	ID        string    `json:"id"`
	Gateway   string    `json:"gateway"`
	Rights    string    `json:"rights"`
	Devices   string    `json:"devices,omitzero"`
	PerSecond int       `json:"rate,omitzero"`
	Burst     int       `json:"burst,omitzero"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires,omitzero"`
	Expired   bool      `json:"expired"`
}

func (c *tokenListCommand) Run(std stdio) error {
	if err := notToken("--file", c.File); err != nil {
		return err
	}
	tokens, err := token.ReadFile(c.File)
	if err != nil {
		return err
	}
	var listed []listedToken
	for i := range tokens {
		t := &tokens[i]
		listed = append(listed, listedToken{
			ID: t.ID().String(), Gateway: t.Gateway.String(), Rights: t.Rights.String(), Devices: t.Devices.String(),
			PerSecond: t.Limit.PerSecond, Burst: t.Limit.Burst,
			Created: t.Created, Expires: t.Expires, Expired: t.Expired(time.Now()),
		})
	}
	if c.JSON {
		return printJSONLines(std.out, listed)
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tGATEWAY\tRIGHTS\tDEVICES\tRATE\tCREATED\tEXPIRES")
	for _, t := range listed {
		devices, rate, expires := "all", "default", "never"
		if t.Devices != "" {
			devices = t.Devices + "*"
		}
		if t.PerSecond > 0 {
			rate = fmt.Sprintf("%d/s, %d", t.PerSecond, t.Burst)
		}
		if !t.Expires.IsZero() {
			expires = t.Expires.Format(time.RFC3339)
		}
		if t.Expired {
			expires += " (expired)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Gateway, t.Rights, devices, rate, t.Created.Format(time.RFC3339), expires)
	}
	return table.Flush()
}

func printJSONLines(out io.Writer, listed []listedToken) error {
	for _, t := range listed {
		text, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("format token: %w", err)
		}
		if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

type tokenRevokeCommand struct {
	tokenChange `embed:""`

	IDs     []string `arg:"" optional:"" name:"id" help:"IDs of the tokens, as list shows them."`
	Gateway string   `action:"" placeholder:"NAME" help:"Revoke all tokens of a gateway."`
	Expired bool     `action:"" help:"Revoke those that have expired."`
	All     bool     `action:"" help:"Revoke all."`
}

func (c *tokenRevokeCommand) Run(ctx context.Context, std stdio) error {
	ids, which, err := c.which(time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	trail, err := c.openTrail(ctx)
	if err != nil {
		return err
	}
	revoked, err := token.Revoke(ctx, c.File, which, func(revoked []token.Token) error {
		found := make(map[token.ID]bool)
		for i := range revoked {
			found[revoked[i].ID()] = true
		}
		for _, id := range ids {
			if !found[id] {
				return fmt.Errorf("%w: %s; nothing was revoked", token.ErrNoMatch, id)
			}
		}
		return trail.changing(ctx, audit.TokenRevoked, revoked...)
	})
	err = errors.Join(trail.changed(ctx, err), trail.close())
	for i := range revoked {
		fmt.Fprintf(std.out, "revoked %s: %s\n", revoked[i].ID(), describe(&revoked[i]))
	}
	return err
}

// which says which tokens to revoke. ids are those that must be there.
func (c *tokenRevokeCommand) which(now time.Time) (ids []token.ID, which func(*token.Token) bool, err error) {
	if err := notToken("--file", c.File); err != nil {
		return nil, nil, err
	}
	ways := 0
	if len(c.IDs) > 0 {
		ways++
		wanted := make(map[token.ID]bool)
		for _, text := range c.IDs {
			id, err := token.ParseID(text) // its error does not repeat what may be a token
			if err != nil {
				return nil, nil, usageError{err.Error()}
			}
			ids, wanted[id] = append(ids, id), true
		}
		which = func(t *token.Token) bool { return wanted[t.ID()] }
	}
	if c.Gateway != "" {
		ways++
		name, err := vitals.ParseName(c.Gateway)
		if err != nil {
			return nil, nil, usageError{"--gateway: " + err.Error()}
		}
		which = func(t *token.Token) bool { return t.Gateway == name }
	}
	if c.Expired {
		ways++
		which = func(t *token.Token) bool { return t.Expired(now) }
	}
	if c.All {
		ways++
		which = func(*token.Token) bool { return true }
	}
	if ways != 1 {
		return nil, nil, usageError{"say which tokens to revoke: IDs, or one of --gateway, --expired and --all"}
	}
	return ids, which, nil
}

// A trail writes changes of tokens into the audit log.
type trail struct {
	log     *audit.Log // nil: none
	actor   string
	written []audit.Record // of the change under way
}

func (c *tokenChange) openTrail(ctx context.Context) (*trail, error) {
	if c.Audit == "" {
		return &trail{}, nil
	}
	log, err := audit.Open(ctx, c.Audit, audit.Options{})
	if err != nil {
		return nil, err
	}
	return &trail{log: log, actor: audit.Actor()}, nil
}

// changing records that tokens are about to be changed. When it fails, they must
// not be.
func (t *trail) changing(ctx context.Context, event audit.Event, tokens ...token.Token) error {
	if t.log == nil {
		return nil
	}
	for i := range tokens {
		r := audit.Record{
			Event: event, Token: tokens[i].ID().String(), Gateway: tokens[i].Gateway, Rights: tokens[i].Rights.String(),
			Device: tokens[i].Devices, Expires: tokens[i].Expires, Actor: t.actor,
		}
		if err := t.log.Append(ctx, r); err != nil {
			return err
		}
		t.written = append(t.written, r)
	}
	return nil
}

// changed ends a change. err is its error, which is returned; where it says that
// nothing was changed, that is recorded too.
func (t *trail) changed(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, token.ErrUncertain) {
		for _, r := range t.written {
			r.Event = audit.TokenChangeFail
			err = errors.Join(err, t.log.Append(ctx, r))
		}
	}
	t.written = nil
	return err
}

func (t *trail) close() error {
	if t.log == nil {
		return nil
	}
	return t.log.Close()
}
