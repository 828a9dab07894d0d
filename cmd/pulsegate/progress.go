package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress shows on a terminal how far a long piece of work is. Where out is no
// terminal it shows nothing.
type progress struct {
	bar *progressbar.ProgressBar
}

// newProgress returns a progress of some work on so many bytes; a total of -1
// says that it is not known yet.
func newProgress(out io.Writer, what string, totalBytes int64) *progress {
	terminal, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return &progress{}
	}
	return &progress{bar: progressbar.NewOptions64(totalBytes,
		progressbar.OptionSetWriter(out), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription(what), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())}
}

// set shows that doneBytes of totalBytes are done.
func (p *progress) set(doneBytes, totalBytes int64) {
	if p.bar == nil {
		return
	}
	p.bar.ChangeMax64(totalBytes)
	_ = p.bar.Set64(doneBytes) // what cannot be shown is no reason to stop
}

// finish takes the bar away.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
