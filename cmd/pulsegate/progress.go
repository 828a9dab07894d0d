package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/pulsegate/pulsegate/internal/sys/terminal"
)

// A progress shows the progress of long work on a terminal. Elsewhere it shows nothing.
type progress struct{ *progressbar.ProgressBar }

// newProgress returns the progress of work of unknown length.
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

// newByteProgress returns a progress in bytes.
func newByteProgress(out io.Writer, what string) progress {
	return newProgress(out, what, progressbar.OptionShowBytes(true))
}

// set shows how much of the work is done.
func (p progress) set(done, all int64) {
	p.ChangeMax64(all)
	_ = p.Set64(done) // the work continues without a display
}

// clear removes the display, so that a line can be printed. The next set shows it again.
func (p progress) clear() { _ = p.Clear() }

// finish removes the display for good.
func (p progress) finish() { _ = p.Finish() }
