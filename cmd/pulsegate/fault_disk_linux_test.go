package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"golang.org/x/sys/unix"
)

// A disk is an ext4 file system on a loop device whose power can be cut.
type disk struct {
	testing.TB
	image   string
	dir     string // where it is mounted
	mounted bool
}

// ioctl requests from linux/fs.h and, for the first one, EXT4_IOC_SHUTDOWN of fs/ext4/ext4.h. Its
// argument 2 is EXT4_GOING_FLAGS_NOLOGFLUSH: the journal is no longer written, as in a power
// loss.
const (
	fsIocShutdown   = 0x8004587d
	goingNoLogFlush = 2
	fiFreeze        = 0xc0045877
	fiThaw          = 0xc0045878
)

// newDisk creates a sparse disk of this many bytes and mounts it. It is removed when the test
// ends.
func newDisk(t testing.TB, bytes int64) *disk {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mounted")
	try(t, os.Mkdir(dir, 0o700))
	return newDiskOn(t, dir, bytes)
}

// newDiskOn is newDisk for a disk that is mounted on a directory.
func newDiskOn(t testing.TB, dir string, bytes int64) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		unable(t, "a loop device is needed, and root to mount it")
	}
	d := &disk{TB: t, image: filepath.Join(t.TempDir(), "image"), dir: dir}
	try(t, os.WriteFile(d.image, nil, 0o600))
	try(t, os.Truncate(d.image, bytes))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		unable(t, "mkfs.ext4: %v\n%s", err, out)
	}
	if err := d.mount(); err != nil {
		unable(t, "%v", err)
	}
	t.Cleanup(func() {
		if d.mounted {
			d.thaw() // a frozen file system cannot be unmounted
			d.unmount()
		}
	})
	return d
}

// mount mounts d through a free loop device. The kernel frees the device when d is unmounted.
func (d *disk) mount() error {
	device, err := attachLoop(d.image)
	if err != nil {
		return fmt.Errorf("attach a loop device to %s: %w", d.image, err)
	}
	defer device.Close()
	if err := unix.Mount(device.Name(), d.dir, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", device.Name(), d.dir, err)
	}
	d.mounted = true
	return nil
}

// attachLoop attaches a free loop device to an image. If another process takes the device first,
// the next one is tried.
func attachLoop(image string) (device *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	polltest.Within(polltest.Patience, func() bool {
		var n int
		if n, err = unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE); err != nil {
			return true
		}
		if device, err = os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0); err != nil {
			return !errors.Is(err, os.ErrNotExist) // its node may not exist yet
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err != nil {
			device.Close()
		}
		return err != unix.EBUSY
	})
	if err != nil {
		return nil, err
	}
	return device, nil
}

// unmount unmounts d.
func (d *disk) unmount() {
	d.Helper()
	try(d, unmount(d.dir))
	d.mounted = false
}

// unmount waits for exiting processes to release a file system, and unmounts it.
func unmount(dir string) error {
	var err error
	polltest.Within(polltest.Patience, func() bool {
		err = unix.Unmount(dir, 0)
		return err != unix.EBUSY
	})
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// cutPower ends the file system as a power loss does: what is not on the device by now never will
// be. Files can be neither read nor written until revive.
func (d *disk) cutPower() {
	d.Helper()
	d.control("cut the power of",
		func(fd int) error { return unix.IoctlSetPointerInt(fd, fsIocShutdown, goingNoLogFlush) })
}

// revive mounts what is on the device after cutPower. Nothing may use the disk.
func (d *disk) revive() {
	d.Helper()
	d.unmount()
	try(d, d.mount())
}

// freeze blocks all writers until thaw. Processes that hang in the kernel cannot be killed, so
// the disk is thawed even if the test hangs.
func (d *disk) freeze() {
	d.Helper()
	d.control("freeze", func(fd int) error { return unix.IoctlSetInt(fd, fiFreeze, 0) })
	timer := time.AfterFunc(2*polltest.Patience, func() { _ = d.tryThaw() })
	d.Cleanup(func() { timer.Stop() })
}

// thaw ends a freeze. Without one it does nothing.
func (d *disk) thaw() {
	d.Helper()
	try(d, d.tryThaw())
}

func (d *disk) tryThaw() error {
	return d.tryControl("thaw", func(fd int) error {
		if err := unix.IoctlSetInt(fd, fiThaw, 0); err != unix.EINVAL {
			return err
		}
		return nil // it is not frozen
	})
}

func (d *disk) control(what string, do func(fd int) error) {
	d.Helper()
	try(d, d.tryControl(what, do))
}

func (d *disk) tryControl(what string, do func(fd int) error) error {
	fd, err := unix.Open(d.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = do(fd)
		if closeErr := unix.Close(fd); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		return fmt.Errorf("%s disk %s: %w", what, d.dir, err)
	}
	return nil
}
