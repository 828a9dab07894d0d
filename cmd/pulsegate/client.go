package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/migrate"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// tokenVariable is the environment variable that holds a token.
const tokenVariable = "PULSEGATE_TOKEN"

// exposedWarning is printed if a token leaves this machine in clear text.
const exposedWarning = "warning: the token and the readings are sent in clear text; use https\n"

// A remedy says what to do about an error of a command.
type remedy struct {
	commands string // that may have the error; "": all
	is       func(error) bool
	todo     string // ADDRESS stands for how to correct the server's address
}

// remedies has the more specific ones first. It is never modified.
var remedies = []remedy{
	{"migrate", wraps(storage.ErrLocked), "Stop the servers that use the store."},
	{"migrate", wraps(migrate.ErrIncomplete, context.Canceled),
		"Repeat the command to continue: what was copied stays in the target."},
	{"migrate", wraps(syscall.ECONNREFUSED), "Start PostgreSQL, or check the address."},
	{"profile", wraps(profile.ErrNotPulsegate),
		"'serve --admin-addr' sets the address of the admin listener; its default is 127.0.0.1:6060."},
	{"", answered(http.StatusUnauthorized, ""), "Name a file that holds a valid token with --token-file, or set " +
		tokenVariable + ". 'pulsegate token create' creates tokens."},
	{"backup erase subject", answered(http.StatusNotFound, "#not-found"),
		"--target must be the address of the admin listener."},
	{"", answered(http.StatusNotFound, "#unknown-device"), "'pulsegate devices' lists the devices."},
	{"", wraps(transfer.ErrNeedsTLS), "The server uses TLS: use https instead of http."},
	{"", func(err error) bool { p, ok := errors.AsType[*transfer.Problem](err); return ok && p.Type == "" },
		"The answer is not from a Pulsegate server: ADDRESS."},
	{"", wraps(syscall.ECONNREFUSED), "Start a server with 'pulsegate serve', or ADDRESS."},
	{"", func(err error) bool { return errors.As(err, new(*net.DNSError)) }, "The host name was not found: ADDRESS."},
	{"", wraps(http.ErrSchemeMismatch), "The server does not use TLS: use http instead of https."},
	{"", wraps(storage.ErrLocked), "Stop the server that uses the directory, or copy its data with 'pulsegate backup'."},
	{"", wraps(token.ErrNoMatch), "'pulsegate token list' lists the tokens."},
}

// wraps returns a function that reports whether an error is one of targets.
func wraps(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

// answered returns a function that reports whether an error is a server's answer with a status and
// a type that ends with name.
func answered(status int, name string) func(error) bool {
	return func(err error) bool {
		p, ok := errors.AsType[*transfer.Problem](err)
		return ok && p.Status == status && strings.HasSuffix(p.Type, name)
	}
}

// hint returns what to do about the error of a command, or "".
func hint(node *kong.Node, err error) string {
	command, _, _ := strings.Cut(node.Path(), " ")
	i := slices.IndexFunc(remedies, func(r remedy) bool {
		return (r.commands == "" || slices.Contains(strings.Fields(r.commands), command)) && r.is(err)
	})
	if i < 0 {
		return ""
	}
	address := "check the address"
	if slices.ContainsFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == "target" }) {
		address = "set the server's address with --target"
	}
	return strings.Replace(remedies[i].todo, "ADDRESS", address, 1)
}

// clientFlags are the flags of commands that talk to a server.
type clientFlags struct {
	transfer.CredentialFiles `embed:"" group:"credentials"`
}

// readerFlags are the flags of commands that read from the public listener.
type readerFlags struct {
	Target string `placeholder:"URL" default:"http://127.0.0.1:8080" help:"URL of the server."`

	clientFlags `embed:""`
}

// credentials reads the files that the flags name. It warns of a token that is sent in clear
// text.
func (f *clientFlags) credentials(target string, stderr io.Writer) (transfer.Credentials, error) {
	if err := notToken("--token-file", f.TokenFile); err != nil {
		return transfer.Credentials{}, err
	}
	cred, err := f.Load(target, os.Getenv(tokenVariable))
	if cred.Exposed {
		fmt.Fprint(stderr, exposedWarning)
	}
	return cred, err
}

// connect returns a client of the server at target.
func (f *clientFlags) connect(target string, stderr io.Writer) (*transfer.Client, error) {
	cred, err := f.credentials(target, stderr)
	if err != nil {
		return nil, err
	}
	return transfer.NewClient(target, cred)
}

// notToken rejects the text of a token as the value of a flag that names a file. Errors and
// logs contain the names of files.
func notToken(flag, path string) error {
	if token.IsText(path) {
		return settings.Usagef("%s requires the name of a file, not a token", flag)
	}
	return nil
}
