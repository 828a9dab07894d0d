package filewatch_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts a new file in the place of path, as an atomic writer does.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

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
			if err != nil {
				t.Fatal(err)
			}
			write(t, path+".new", "txet")
			if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"another time", func(t *testing.T, path string) {
			if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"another mode", func(t *testing.T, path string) {
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"removed", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
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
				var calls atomic.Int64
				w := filewatch.New(time.Second, func() bool { calls.Add(1); return false }, first, second)
				tt.change(t, second) // between New and Start: must not be lost
				w.Start()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				w.Close()
				if got := calls.Load(); got != tt.want {
					t.Errorf("changed was called %d times, want %d", got, tt.want)
				}
			})
		})
	}
}

// What is written while changed runs is reported by a further call.
func TestChangeDuringChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		var calls atomic.Int64
		w := filewatch.New(time.Second, func() bool {
			if calls.Add(1) == 1 {
				write(t, path, "second")
			}
			return false
		}, path)
		defer w.Close()
		w.Start()
		write(t, path, "first one")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := calls.Load(); got != 2 {
			t.Errorf("changed was called %d times, want 2", got)
		}
	})
}

// What could not be read is reported until it can, once an interval.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		var calls atomic.Int64
		w := filewatch.New(time.Second, func() bool { return calls.Add(1) < 4 }, path)
		defer w.Close()
		w.Start()
		write(t, path, "text")
		for _, want := range []int64{1, 2, 3, 4, 4, 4} {
			time.Sleep(time.Second)
			synctest.Wait()
			if got := calls.Load(); got != want {
				t.Errorf("changed was called %d times, want %d", got, want)
			}
		}
	})
}

// A symbolic link that is pointed elsewhere is a change.
func TestSymlink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
		write(t, a, "text")
		write(t, b, "text")
		if err := os.Symlink(a, link); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		w := filewatch.New(time.Second, func() bool { calls.Add(1); return false }, link)
		w.Start()
		if err := os.Symlink(b, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		w.Close()
		w.Close() // a second one does nothing
		if got := calls.Load(); got != 1 {
			t.Errorf("changed was called %d times, want 1", got)
		}
	})
}

// A Watcher that was never started can be closed.
func TestCloseUnstarted(t *testing.T) {
	filewatch.New(time.Second, func() bool { t.Error("changed was called"); return false }, filepath.Join(t.TempDir(), "none")).Close()
}
