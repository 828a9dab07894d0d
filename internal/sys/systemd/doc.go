// Package systemd communicates with the service manager that started the process, as
// described in sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3).
//
// # Promise
//
// Without a service manager that requests it, nothing is sent and no descriptor is
// touched. Sending a message takes at most one second, even if the manager does not
// read.
//
// # Not here
//
// No D-Bus. No policy: the caller decides when a server is ready and what its watchdog
// checks. The caller provides a function to read the environment.
package systemd
