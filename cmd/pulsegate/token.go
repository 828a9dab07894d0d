package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
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

// change has do change the token file, with what records the changes.
func (c *tokenChange) change(ctx context.Context, do func(context.Context, *token.Keeper) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	keeper := &token.Keeper{Path: c.File, Actor: audit.Actor()}
	if c.Audit != "" {
		if keeper.Audit, err = audit.Open(ctx, c.Audit, audit.Options{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, keeper.Audit.Close()) }()
	}
	err = do(ctx, keeper)
	if errors.Is(err, token.ErrSpec) {
		return settings.Usage(err)
	}
	return err
}

// What a token is for comes from the command line alone: a variable that was set
// for another command must not widen, or revoke, anything.
type tokenCreateCommand struct {
	tokenChange `embed:""`

	Gateway vitals.Name  `env:"-" required:"" placeholder:"NAME" help:"Gateway that the token is for; readings that come with it are that gateway's. Of a token that only reads: a name for who holds it."`
	Rights  token.Rights `env:"-" default:"write" placeholder:"LIST" help:"Any of write, read and admin, with commas between."`
	Expires string       `env:"-" placeholder:"90d" help:"When the token ends: after a time such as 90d or 12h, or at one in RFC 3339. Default: never."`
	Devices vitals.Name  `env:"-" placeholder:"PREFIX" help:"Only devices whose names begin so, for writing as for reading. Default: all."`
	Rate    int          `env:"-" placeholder:"N" help:"Readings a second in the long run. Default: what the server's settings say."`
	Burst   int          `env:"-" placeholder:"N" help:"Readings at once after a silence. Default: those of a minute."`
}

func (c *tokenCreateCommand) Run(ctx context.Context, std stdio) error {
	now := time.Now()
	spec, err := c.spec(now)
	if err != nil {
		return err
	}
	return c.change(ctx, func(ctx context.Context, keeper *token.Keeper) error {
		t, err := keeper.Create(ctx, spec, now, func(text string) error {
			_, err := fmt.Fprintln(std.out, text)
			return err
		})
		if err == nil {
			fmt.Fprintf(std.err, "Token %s: %s. It is kept nowhere and cannot be shown again.\n", t.ID(), describe(&t))
		}
		return err
	})
}

// spec turns the flags into what to make.
func (c *tokenCreateCommand) spec(now time.Time) (spec token.Spec, err error) {
	if err := notToken("--file", c.File); err != nil {
		return spec, err
	}
	spec = token.Spec{Gateway: c.Gateway, Rights: c.Rights, Devices: c.Devices, Limit: token.LimitOf(c.Rate, c.Burst)}
	if c.Expires == "" {
		return spec, nil
	}
	if d, err := settings.ParseDuration(c.Expires); err == nil && d >= time.Second {
		spec.Expires = now.Add(d)
	} else if ms, err := vitals.ParseRFC3339(c.Expires); err == nil {
		spec.Expires = time.UnixMilli(ms)
	} else {
		return spec, settings.Usagef("--expires is neither a time such as 90d or 12h nor RFC 3339 with zone")
	}
	return spec, nil
}

// describe returns what a token is for, as text.
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
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(table, "ID\tGATEWAY\tRIGHTS\tDEVICES\tRATE\tCREATED\tEXPIRES")
	}
	for i := range tokens {
		t := &tokens[i]
		if !c.JSON {
			fmt.Fprintln(table, listLine(t))
			continue
		}
		err := printJSON(std.out, listedToken{
			ID: t.ID().String(), Gateway: t.Gateway.String(), Rights: t.Rights.String(), Devices: t.Devices.String(),
			PerSecond: t.Limit.PerSecond, Burst: t.Limit.Burst,
			Created: t.Created, Expires: t.Expires, Expired: t.Expired(time.Now()),
		})
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// listLine returns the line of a token in the table.
func listLine(t *token.Token) string {
	devices, rate, expires := "all", "default", "never"
	if !t.Devices.IsZero() {
		devices = t.Devices.String() + "*"
	}
	if t.Limit.PerSecond > 0 {
		rate = fmt.Sprintf("%d/s, %d", t.Limit.PerSecond, t.Limit.Burst)
	}
	if !t.Expires.IsZero() {
		expires = t.Expires.Format(time.RFC3339)
	}
	if t.Expired(time.Now()) {
		expires += " (expired)"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", t.ID(), t.Gateway, t.Rights, devices, rate, t.Created.Format(time.RFC3339), expires)
}

type tokenRevokeCommand struct {
	tokenChange `embed:""`

	IDs     []token.ID  `arg:"" optional:"" name:"id" help:"IDs of the tokens, as list shows them."`
	Gateway vitals.Name `action:"" placeholder:"NAME" help:"Revoke all tokens of a gateway."`
	Expired bool        `action:"" help:"Revoke those that have expired."`
	All     bool        `action:"" help:"Revoke all."`
}

func (c *tokenRevokeCommand) Run(ctx context.Context, std stdio) error {
	which, err := c.which(time.Now())
	if err != nil {
		return err
	}
	return c.change(ctx, func(ctx context.Context, keeper *token.Keeper) error {
		revoked, err := keeper.Revoke(ctx, which, c.IDs...)
		for i := range revoked {
			fmt.Fprintf(std.out, "revoked %s: %s\n", revoked[i].ID(), describe(&revoked[i]))
		}
		return err
	})
}

// which reports the tokens to revoke.
func (c *tokenRevokeCommand) which(now time.Time) (which func(*token.Token) bool, err error) {
	ways := 0
	for _, way := range []struct {
		chosen bool
		which  func(*token.Token) bool
	}{
		{len(c.IDs) > 0, func(t *token.Token) bool { return slices.Contains(c.IDs, t.ID()) }},
		{!c.Gateway.IsZero(), func(t *token.Token) bool { return t.Gateway == c.Gateway }},
		{c.Expired, func(t *token.Token) bool { return t.Expired(now) }},
		{c.All, func(*token.Token) bool { return true }},
	} {
		if way.chosen {
			ways, which = ways+1, way.which
		}
	}
	if ways != 1 {
		return nil, settings.Usagef("say which tokens to revoke: IDs, or one of --gateway, --expired and --all")
	}
	return which, notToken("--file", c.File)
}
