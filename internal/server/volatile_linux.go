package server

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// warnVolatile warns of a data directory in memory, where a sync does not
// protect data from a power cut.
func warnVolatile(log *slog.Logger, dir string) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return // the store has opened, and this is only for a warning
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		log.Warn("the data directory is in memory: all readings are lost when the machine stops", "dir", dir)
	}
}
