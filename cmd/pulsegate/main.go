// Command pulsegate takes vital-sign readings over HTTP, acknowledges what is on
// stable storage, and serves it back.
//
// This package wires flags to packages and holds no logic of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/terminal"
	"github.com/pulsegate/pulsegate/vitals"
)

// Exit codes. Scripts rely on them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	// The first signal ends ctx, and with it the command in good order. The
	// second one finds the signals' default behaviour back in force.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], stdio{os.Stdin, terminal.Guard(os.Stdout), terminal.Guard(os.Stderr)}))
}

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// commands is the command line. Each command is described beside its code.
type commands struct {
	settings.Settings `embed:""`

	Serve   serveCommand   `cmd:"" help:"Take readings over HTTP, store them, serve them back."`
	Demo    demoCommand    `cmd:"" help:"Start a server, send it a real recording over HTTP, show what was stored, keep serving."`
	Import  importCommand  `cmd:"" help:"Send a CSV or NDJSON file of readings to a server."`
	Export  exportCommand  `cmd:"" help:"Write a device's readings from a server or from the data directory of a stopped one."`
	Check   checkCommand   `cmd:"" help:"Verify the data directory of a stopped server, read-only, and count what it holds."`
	Backup  backupCommand  `cmd:"" help:"Write a consistent, verified copy of a running or a stopped server's store to a directory."`
	Restore restoreCommand `cmd:"" help:"Make a data directory of a backup. Nothing is overwritten."`
	Erase   eraseCommand   `cmd:"" help:"Remove all readings of a device from a running or a stopped server, for good."`
	Sim     simCommand     `cmd:"" help:"Load a server like a fleet of gateways, and prove that everything acknowledged was stored."`
	Audit   auditCommand   `cmd:"" help:"Verify the audit log."`
	Token   tokenCommand   `cmd:"" help:"Create, list and revoke the tokens of gateways and readers."`
	Profile profileCommand `cmd:"" help:"Show what a request costs a running server: CPU time, allocations, system calls, by part and by line."`
	Health  healthCommand  `cmd:"" help:"Ask a server whether it can do its work: exit code 0 if so, otherwise 1. For health checks of containers."`
	Version versionCommand `cmd:"" help:"Show the version, the Go version and the build settings."`

	Completion completionCommand `cmd:"" help:"Print a script that makes a shell complete command lines."`
	Man        manCommand        `cmd:"" help:"Print the manual page, for man(1)."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:""`
}

// run runs one command line and returns its exit code. It is main without the process, so
// that tests can call it.
func run(ctx context.Context, args []string, std stdio) (code int) {
	defer func() {
		if r := recover(); r != nil {
			exit, ok := r.(exitCode)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var cmds commands
	parser, err := newParser(&cmds, std)
	if err != nil {
		return report(std, exitFailed, err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		if parseErr, ok := errors.AsType[*kong.ParseError](err); ok && len(args) == 0 {
			_ = parseErr.Context.PrintUsage(false) // the usage is an extra beside the error
		}
		defer fmt.Fprintln(std.err, "Run 'pulsegate --help', or 'pulsegate COMMAND --help'.")
		return report(std, exitUsage, err)
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	if _, serves := kctx.Selected().Target.Addr().Interface().(*serveCommand); !serves { // which logs them
		for _, text := range unknownVariables(kctx) {
			_ = report(std, exitDone, fmt.Errorf("warning: %s", text))
		}
	}
	err = kctx.Run(std)
	if _, usage := errors.AsType[settings.UsageError](err); usage {
		return report(std, exitUsage, err)
	}
	if err != nil {
		return report(std, exitFailed, err)
	}
	return exitDone
}

// report prints err for people, and returns code.
func report(std stdio, code int, err error) int {
	logbudget.LastLine(std.err, fmt.Sprintf("pulsegate: %v\n", err))
	return code
}

// An exitCode unwinds from kong's call of exit, after --help for example.
type exitCode int

// newParser returns the parser of the command line, which also reads the environment and
// the file that --config names.
func newParser(cmds *commands, std stdio) (*kong.Kong, error) {
	cmds.LookupEnv = os.LookupEnv
	return kong.New(cmds,
		kong.Name("pulsegate"),
		kong.Description("Readings of wearables in over HTTP, acknowledged when they are on stable storage, and back out."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		settings.Environment(),
		settings.Units(),
		settings.Text(vitals.ParseName),
		settings.Text(token.ParseRights),
		settings.Text(token.ParseID),
		settings.Text(recording.ParseMapping),
		settings.Text(parseMoment),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Help(printHelp),
		kong.Vars(server.Defaults()),
	)
}

// unknownVariables returns a sentence about each variable that sets nothing.
func unknownVariables(ctx *kong.Context) []string {
	return settings.UnknownVariables(os.Environ(), ctx.Model.Node, tokenVariable)
}
