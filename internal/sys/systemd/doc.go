// Package systemd speaks with the service manager that started the process, as
// sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3) describe.
//
// # Promise
//
// Without a service manager that asks for it, nothing is sent and no descriptor
// is touched. A message is sent within a second or not at all: a manager that
// does not read holds nobody up.
//
// # Not here
//
// No D-Bus. No policy: when a server is ready, and what its watchdog proves, is
// the caller's to say. The environment is read through a function that the caller
// gives.
package systemd
