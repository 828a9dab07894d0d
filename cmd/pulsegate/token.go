package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token and print it once, or write it to a file. Running servers accept it at once."`
	List   tokenListCommand   `cmd:"" help:"List the tokens by ID. The tokens themselves are not stored."`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke tokens. Running servers reject them within a second."`
}

// tokenChange are the flags of commands that change the token file.
type tokenChange struct {
	File  string `default:"pulsegate-tokens" env:"PULSEGATE_TOKENS" type:"path" help:"Token file."`
	Audit string `default:"${default_audit}" env:"PULSEGATE_AUDIT" placeholder:"FILE" help:"Audit log; empty for none."`
}

// changeTimeout bounds the wait for the locks of the token file and the audit log.
const changeTimeout = 30 * time.Second

// change calls do with a Keeper that changes the token file and records the changes.
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
	if errors.Is(err, token.ErrInvalid) {
		return settings.Usage(err)
	}
	return err
}

// The rights of a token come from the command line only: a variable that is set for another
// command must not extend them.
type tokenCreateCommand struct {
	tokenChange `embed:""`

	Gateway vitals.Name  `env:"-" required:"" placeholder:"NAME" help:"Gateway that the token is for; readings sent with it are stored under this name. For a token that only reads: a name for its holder."`
	Rights  token.Rights `env:"-" default:"write" placeholder:"LIST" help:"Rights, separated by commas: write, read, admin, relay."`
	Expires string       `env:"-" placeholder:"90d" help:"When the token expires: after a duration such as 90d or 12h, or at a time in RFC 3339. Default: never."`
	Devices vitals.Name  `env:"-" placeholder:"PREFIX" help:"Only devices whose names have this prefix, for writing and reading. Default: all devices."`
	Subject []string     `env:"-" sep:"none" placeholder:"ID" help:"Only what was measured of this subject, under /fhir; may be repeated, up to 16 times. Needs --rights read. Default: not bound to subjects."`
	Kiosk   bool         `env:"-" help:"For a screen on a wall: a session that is begun with the token in a browser lasts as long as the token. Needs --rights read."`
	Rate    int          `env:"-" placeholder:"N" help:"Readings per second in the long run. Default: that of serve --token-rate."`
	Burst   int          `env:"-" placeholder:"N" help:"Readings accepted at once after a pause. Default: 60 times --rate."`
	Out     string       `action:"" type:"path" placeholder:"FILE" help:"New file for the token, which only you can read. Default: standard output."`
}

func (c *tokenCreateCommand) Run(ctx context.Context, std stdio) error {
	now := time.Now()
	spec, err := c.spec(now)
	if err != nil {
		return err
	}
	handOut := func(text string) error {
		_, err := fmt.Fprintln(std.out, text)
		return err
	}
	if c.Out != "" {
		out, err := createOutput("--out", c.Out)
		if err != nil {
			return err
		}
		defer out.abandon() // removes the file if no token was created
		handOut = func(text string) error {
			return out.write(func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text)
				return err
			})
		}
	}
	return c.change(ctx, func(ctx context.Context, keeper *token.Keeper) error {
		t, err := keeper.Create(ctx, spec, now, handOut)
		if err != nil {
			return err
		}
		where := "It is not stored and cannot be shown again."
		if c.Out != "" {
			where = "It is in " + c.Out + " and nowhere else."
		}
		fmt.Fprintf(std.err, "Token %s: %s. %s\n", t.ID(), describe(&t), where)
		return nil
	})
}

// spec returns the specification of the token that the flags describe.
func (c *tokenCreateCommand) spec(now time.Time) (spec token.Token, err error) {
	if err := errors.Join(notToken("--file", c.File), notToken("--out", c.Out)); err != nil {
		return spec, err
	}
	spec = token.Token{Gateway: c.Gateway, Rights: c.Rights, Devices: c.Devices, Limit: token.LimitOf(c.Rate, c.Burst),
		Kiosk: c.Kiosk}
	if spec.Subjects, err = token.MakeSubjects(c.Subject); err != nil {
		return spec, settings.Usage(err)
	}
	if c.Expires == "" {
		return spec, nil
	}
	if d, err := settings.ParseDuration(c.Expires); err == nil && d >= time.Second {
		spec.Expires = now.Add(d)
	} else if ms, _, err := vitals.ParseRFC3339(c.Expires); err == nil {
		spec.Expires = time.UnixMilli(ms)
	} else {
		return spec,
			settings.Usagef("--expires %q is neither a duration such as 90d or 12h nor a time in RFC 3339 with a zone",
				c.Expires)
	}
	return spec, nil
}

// describe returns the rights of a token as text.
func describe(t *token.Token) string {
	text := fmt.Sprintf("%s for %s", t.Rights, t.Gateway)
	if !t.Devices.IsZero() {
		text += fmt.Sprintf(", devices %s*", t.Devices)
	}
	if t.Subjects != "" {
		text += ", subjects " + strings.Join(t.Subjects.List(), " ")
	}
	if t.Kiosk {
		text += ", for a kiosk"
	}
	if t.Limit != (token.Limit{}) {
		text += fmt.Sprintf(", %d readings per second, %d at once", t.Limit.PerSecond, t.Limit.Burst)
	}
	if t.Expires.IsZero() {
		return text + ", does not expire"
	}
	return text + ", expires " + t.Expires.Format(time.RFC3339)
}

type tokenListCommand struct {
	File string `default:"pulsegate-tokens" env:"PULSEGATE_TOKENS" type:"path" help:"Token file."`
	JSON bool   `help:"Print one JSON object per line and token."`
}

// A listedToken is a token in the output of list.
type listedToken struct {
	ID        string    `json:"id"`
	Gateway   string    `json:"gateway"`
	Rights    string    `json:"rights"`
	Devices   string    `json:"devices,omitzero"`
	Subjects  []string  `json:"subjects,omitzero"`
	Kiosk     bool      `json:"kiosk,omitzero"`
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
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; 'pulsegate token create' creates it", err)
	}
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
			Subjects: t.Subjects.List(), Kiosk: t.Kiosk, PerSecond: t.Limit.PerSecond, Burst: t.Limit.Burst,
			Created: t.Created, Expires: t.Expires, Expired: t.Expired(time.Now()),
		})
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// listLine returns the row of a token.
func listLine(t *token.Token) string {
	devices, rate, expires := "all", "default", "never"
	if !t.Devices.IsZero() {
		devices = t.Devices.String() + "*"
	}
	if t.Kiosk {
		devices += ", for a kiosk"
	}
	if t.Subjects != "" {
		devices = "of subjects " + strings.Join(t.Subjects.List(), " ")
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
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", t.ID(), t.Gateway, t.Rights, devices, rate,
		t.Created.Format(time.RFC3339), expires)
}

type tokenRevokeCommand struct {
	tokenChange `embed:""`

	IDs     []token.ID  `arg:"" optional:"" name:"id" help:"IDs of tokens, as 'pulsegate token list' prints them."`
	Gateway vitals.Name `action:"" placeholder:"NAME" help:"Revoke all tokens of a gateway."`
	Expired bool        `action:"" help:"Revoke all expired tokens."`
	All     bool        `action:"" help:"Revoke all tokens."`
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

// which returns a function that reports whether to revoke a token.
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
		return nil, settings.Usagef("name the tokens to revoke: IDs, or one of --gateway, --expired and --all")
	}
	return which, notToken("--file", c.File)
}
