//go:build !linux

package listen

import (
	"errors"
	"syscall"
	"time"
)

func endDead(syscall.RawConn, time.Duration) error { return errors.ErrUnsupported }
