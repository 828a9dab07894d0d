package systemd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Messages of sd_notify(3).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Watchdog = "WATCHDOG=1"
)

// Status returns the message that sets the status line shown by systemctl status. Line
// breaks, which would start another message, become spaces.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Extend returns the message that requests at least d more time to start or to stop.
func Extend(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Reloading returns the message that a reload begins now. Send Ready at its end.
// Without a monotonic clock for the timestamp, the message is still valid for
// Type=notify.
func Reloading() string {
	if usec, ok := monotonicUsec(); ok {
		return "RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(usec, 10)
	}
	return "RELOADING=1"
}

// sendTimeout bounds the time to send a message.
const sendTimeout = time.Second

// A Notifier sends messages to the service manager. The nil Notifier sends nothing. It
// is safe for concurrent use.
type Notifier struct{ addr *net.UnixAddr }

// NewNotifier returns a Notifier for the socket in NOTIFY_SOCKET, or nil if that is
// empty. A name that begins with @ is in the abstract namespace.
func NewNotifier(getenv func(string) string) (*Notifier, error) {
	name := getenv("NOTIFY_SOCKET")
	switch {
	case name == "":
		return nil, nil
	case name[0] != '/' && name[0] != '@':
		return nil, fmt.Errorf("NOTIFY_SOCKET %q is neither an absolute path nor an abstract name", name)
	}
	return &Notifier{&net.UnixAddr{Name: name, Net: "unixgram"}}, nil
}

// Send sends messages as one datagram, so that they take effect together.
func (n *Notifier) Send(messages ...string) error {
	if n == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	if _, err := conn.Write([]byte(strings.Join(messages, "\n"))); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}

// WatchdogTimeout returns the interval within which the service manager expects
// [Watchdog] from the process with the given id, or 0 if it expects none.
func WatchdogTimeout(getenv func(string) string, pid int) (time.Duration, error) {
	text := getenv("WATCHDOG_USEC")
	if who := getenv("WATCHDOG_PID"); text == "" || who != "" && who != strconv.Itoa(pid) {
		return 0, nil
	}
	usec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || usec <= 0 || usec > int64(365*24*time.Hour/time.Microsecond) {
		return 0, fmt.Errorf("WATCHDOG_USEC %q is not a time in microseconds", text)
	}
	return time.Duration(usec) * time.Microsecond, nil
}
