package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/pulsegate/pulsegate/internal/sys/terminal"
)

// A progress shows on a terminal how far a long piece of work is. Elsewhere it shows
// nothing.
type progress struct{ *progressbar.ProgressBar }

// newProgress returns a progress of work whose length is not known yet.
func newProgress(out io.Writer, what string, opt ...progressbar.Option) progress {
	shown := terminal.Is(out)
	if w, ok := out.(*terminal.Writer); ok {
		out = w.File // a progress bar moves the cursor
	}
	return progress{progressbar.NewOptions64(-1, append(opt,
		progressbar.OptionSetWriter(out), progressbar.OptionSetVisibility(shown),
		progressbar.OptionSetDescription(what), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())...)}
}

// newByteProgress returns a progress that is counted in bytes.
func newByteProgress(out io.Writer, what string) progress {
	return newProgress(out, what, progressbar.OptionShowBytes(true))
}

// set shows how much of all the work is done.
func (p progress) set(done, all int64) {
	p.ChangeMax64(all)
	_ = p.Set64(done) // what cannot be shown is no reason to stop
}

// finish takes the display away.
func (p progress) finish() { _ = p.Finish() }
