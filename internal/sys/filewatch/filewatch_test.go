package filewatch_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

func TestMain(m *testing.M) { polltest.Main(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	try(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace atomically replaces the file at path.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	try(t, os.Rename(path+".new", path))
}

// A loads counts the loads of a Follower after the first one.
type loads struct {
	n     atomic.Int64
	first func()
	load  func(n int64) error // for later loads; may be nil
}

func (l *loads) follow(t *testing.T, paths ...string) *filewatch.Follower {
	t.Helper()
	begun := false
	f, err := filewatch.Follow(filewatch.Options{
		Paths: paths,
		Load: func() (bool, error) {
			switch {
			case !begun:
				begun = true
				if l.first != nil {
					l.first()
				}
			case l.load != nil:
				return true, l.load(l.n.Add(1))
			default:
				l.n.Add(1)
			}
			return true, nil
		},
		OnLoad: func(error) {},
		Final:  []error{errFinal},
	})
	try(t, err)
	return f
}

var errFinal = errors.New("final")

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, path string)
		want   int64
	}{
		{"nothing", func(*testing.T, string) {}, 0},
		{"another length", func(t *testing.T, path string) { write(t, path, "longer text") }, 1},
		{"replaced by one of the same length and time", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			try(t, err)
			write(t, path+".new", "txet")
			try(t, os.Chtimes(path+".new", info.ModTime(), info.ModTime()))
			try(t, os.Rename(path+".new", path))
		}, 1},
		{"another time", func(t *testing.T, path string) {
			try(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
		}, 1},
		{"another mode", func(t *testing.T, path string) {
			try(t, os.Chmod(path, 0o640))
		}, 1},
		{"removed", func(t *testing.T, path string) {
			try(t, os.Remove(path))
		}, 1},
		{"two within one interval", func(t *testing.T, path string) {
			replace(t, path, "one")
			replace(t, path, "another")
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
				write(t, first, "text")
				write(t, second, "text")
				l := loads{first: func() { tt.change(t, second) }} // during the first load; must not be missed
				f := l.follow(t, first, second)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				f.Close()
				if got := l.n.Load(); got != tt.want {
					t.Errorf("%d loads, want %d", got, tt.want)
				}
			})
		})
	}
}

// A change during a load causes another load.
func TestChangeDuringLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		l := loads{load: func(n int64) error {
			if n == 1 {
				write(t, path, "second")
			}
			return nil
		}}
		defer l.follow(t, path).Close()
		write(t, path, "first one")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := l.n.Load(); got != 2 {
			t.Errorf("%d loads, want 2", got)
		}
	})
}

// A failed load is retried at each interval until it succeeds, unless the error is in
// Final.
func TestRetry(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want []int64
	}{{errors.New("no descriptors"), []int64{1, 2, 3, 4, 4, 4}}, {errFinal, []int64{1, 1, 1}}} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			l := loads{load: func(n int64) error {
				if n < 4 {
					return tt.err
				}
				return nil
			}}
			f := l.follow(t, path)
			defer f.Close()
			write(t, path, "text")
			for _, want := range tt.want {
				time.Sleep(time.Second)
				synctest.Wait()
				if got := l.n.Load(); got != want || f.Stale() != (want < 4) {
					t.Errorf("after %v: %d loads, stale %v, want %d", tt.err, got, f.Stale(), want)
				}
			}
		})
	}
}

// OnLoad reports an error once until it changes, and once its end.
func TestOnLoad(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	var next error
	var reported []error
	f, err := filewatch.Follow(filewatch.Options{
		Every:  -1,
		Load:   func() (bool, error) { return false, next },
		OnLoad: func(err error) { reported = append(reported, err) },
	})
	try(t, err)
	defer f.Close()
	for _, next = range []error{nil, a, a, b, nil, nil} {
		if err := f.Reload(); err != next {
			t.Errorf("Reload returns %v, want %v", err, next)
		}
	}
	if want := []error{a, b, nil}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
}

// Pointing a symbolic link elsewhere is a change.
func TestSymlink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
		write(t, a, "text")
		write(t, b, "text")
		try(t, os.Symlink(a, link))
		var l loads
		f := l.follow(t, link)
		try(t, os.Symlink(b, link+".new"))
		try(t, os.Rename(link+".new", link))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		f.Close()
		f.Close() // a second one does nothing
		if got := l.n.Load(); got != 1 {
			t.Errorf("%d loads, want 1", got)
		}
	})
}

// Refresh loads a change that is older than RefreshInterval, an unchanged file not at all, and
// looks at most once within RefreshInterval.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "text")
		loads := 0
		f, err := filewatch.Follow(filewatch.Options{
			Paths:  []string{path},
			Every:  -1,
			Load:   func() (bool, error) { loads++; return true, nil },
			OnLoad: func(error) {},
		})
		try(t, err)
		defer f.Close()
		refresh := func(what string, want int) {
			t.Helper()
			f.Refresh()
			if loads != want {
				t.Errorf("%s: %d loads, want %d", what, loads, want)
			}
		}
		time.Sleep(filewatch.RefreshInterval)
		refresh("unchanged", 1)
		replace(t, path, "other")
		refresh("just looked", 1)
		time.Sleep(filewatch.RefreshInterval)
		refresh("changed", 2)
		time.Sleep(filewatch.RefreshInterval)
		refresh("unchanged again", 2)
	})
}

var try = polltest.Try
