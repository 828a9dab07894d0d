//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package sharedfile

import (
	"errors"
	"os"
)

const noFollow = 0

// CreatePrivately is not supported on this platform.
func CreatePrivately() {}

func isMountRoot(string) bool { return false }

func isOwn(os.FileInfo) bool { return false }

// tryLock fails: without a lock, one of two concurrent changes could be lost.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func giveTo(*os.File, os.FileInfo) error { return nil }
