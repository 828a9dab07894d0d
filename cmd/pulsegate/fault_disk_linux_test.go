package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A disk is an ext4 file system on a loop device whose power can be cut.
type disk struct {
	testing.TB
	image string
	dir   string // where it is mounted
}

// Requests of ioctl, from linux/fs.h and, for the first one, fs/ext4/ext4.h, which
// has it as EXT4_IOC_SHUTDOWN. Its argument 2 is EXT4_GOING_FLAGS_NOLOGFLUSH: the
// journal is not written any more, as when the power goes.
const (
	fsIocShutdown   = 0x8004587d
	goingNoLogFlush = 2
	fiFreeze        = 0xc0045877
	fiThaw          = 0xc0045878
)

// diskPrefix begins the names of the directories in which disks are mounted. The
// test's process id follows.
const diskPrefix = "pulsegate-disk-"

// newDisk makes a disk of so many bytes, most of which the image does not take,
// and mounts it. It is removed when the test ends.
func newDisk(t testing.TB, bytes int64) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		unable(t, "a loop device is needed, and root to mount it")
	}
	sweepDisks(t)
	base, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", diskPrefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{TB: t, image: filepath.Join(base, "image"), dir: filepath.Join(base, "mounted")}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, bytes); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		unable(t, "mkfs.ext4: %v\n%s", err, out)
	}
	if err := d.mount(); err != nil {
		unable(t, "%v", err)
	}
	t.Cleanup(func() {
		if d.mounted() {
			d.thaw() // a frozen one cannot be unmounted
			d.unmount()
		}
	})
	return d
}

func (d *disk) mount() error {
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount an ext4 on a loop device: %w: %s", err, out)
	}
	return nil
}

// unmount unmounts d. It waits for processes that are ending to let go of it.
func (d *disk) unmount() {
	d.Helper()
	var err error
	for range 200 {
		if err = unix.Unmount(d.dir, 0); err != unix.EBUSY {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if err != nil {
		d.Fatalf("unmount %s: %v", d.dir, err)
	}
}

func (d *disk) mounted() bool {
	text, err := os.ReadFile("/proc/self/mounts")
	return err == nil && strings.Contains(string(text), " "+d.dir+" ")
}

// cutPower ends the file system as a loss of power would: nothing that was not
// written to the device by now will be. Files can be neither read nor written
// until revive.
func (d *disk) cutPower() {
	d.Helper()
	d.control("cut the power of", func(fd int) error { return unix.IoctlSetPointerInt(fd, fsIocShutdown, goingNoLogFlush) })
}

// revive mounts what the loss of power has left. Nothing may use the disk.
func (d *disk) revive() {
	d.Helper()
	d.unmount()
	if err := d.mount(); err != nil {
		d.Fatal(err)
	}
}

// freeze lets everything that writes wait until thaw.
func (d *disk) freeze() {
	d.Helper()
	d.control("freeze", func(fd int) error { return unix.IoctlSetInt(fd, fiFreeze, 0) })
}

// thaw ends a freeze, if there is one.
func (d *disk) thaw() {
	d.Helper()
	d.control("thaw", func(fd int) error {
		if err := unix.IoctlSetInt(fd, fiThaw, 0); err != unix.EINVAL {
			return err
		}
		return nil // it is not frozen
	})
}

func (d *disk) control(what string, do func(fd int) error) {
	d.Helper()
	fd, err := unix.Open(d.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = do(fd)
		if closeErr := unix.Close(fd); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		d.Fatalf("%s disk %s: %v", what, d.dir, err)
	}
}

// sweepDisks unmounts what tests have left that were killed.
func sweepDisks(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		dir := strings.Fields(line)[1]
		_, rest, ours := strings.Cut(dir, "/"+diskPrefix)
		pid, _, _ := strings.Cut(rest, "-")
		number, err := strconv.Atoi(pid)
		if !ours || err != nil || unix.Kill(number, 0) == nil {
			continue
		}
		left := &disk{TB: t, dir: dir}
		left.thaw()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Logf("unmount %s, which a killed test has left: %v", dir, err)
		}
		_ = os.RemoveAll(filepath.Dir(dir)) // what is still in use stays for the next sweep
	}
}
