package main

import (
	"context"
	"io"
	"os"
)

// openAny opens a file for reading. Opening a FIFO waits for its writer until ctx has ended.
func openAny(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		file, err := os.Open(path)
		done <- opened{file, err}
	}()
	select {
	case <-ctx.Done():
		return nil, &os.PathError{Op: "open", Path: path, Err: ctx.Err()}
	case o := <-done:
		return o.file, o.err
	}
}

// interruptible returns a reader of in, which is in itself if it is a regular file. Otherwise in may wait for ever, for
// the writer of a pipe or a person at a terminal, and reading fails once ctx has ended.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	file, ok := in.(*os.File)
	if !ok {
		return in
	}
	if info, err := file.Stat(); err != nil || info.Mode().IsRegular() {
		return in
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, file)
		w.CloseWithError(err)
	}()
	return r
}
