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

// Status returns the message that sets the line that systemctl status shows. A
// line break would begin another message; it becomes a space.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Extend returns the message that asks for at least d more to start or to stop.
func Extend(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Reloading returns the message that a reload begins now. Ready tells its end.
// Where there is no monotonic clock to name the moment by, it is still valid for
// Type=notify.
func Reloading() string {
	if usec, ok := monotonicUsec(); ok {
		return "RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(usec, 10)
	}
	return "RELOADING=1"
}

// sendTimeout is the longest that a message may take.
const sendTimeout = time.Second

// A Notifier sends messages to the service manager. The nil Notifier sends
// nothing. Its methods may be called by many goroutines.
type Notifier struct{ addr *net.UnixAddr }

// NewNotifier returns a Notifier for the socket that NOTIFY_SOCKET names, or nil
// if it names none. A name that begins with @ is of the abstract name space.
func NewNotifier(getenv func(string) string) (*Notifier, error) {
	name := getenv("NOTIFY_SOCKET")
	switch {
	case name == "":
		return nil, nil
	case name[0] != '/' && name[0] != '@':
		return nil, fmt.Errorf("systemd: NOTIFY_SOCKET %q is neither a path nor abstract", name)
	}
	return &Notifier{&net.UnixAddr{Name: name, Net: "unixgram"}}, nil
}

// Send sends messages as one, so that they take effect together.
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

// WatchdogTimeout returns the time within which the service manager wants to hear
// [Watchdog] from the process with this id, or 0 if it does not.
func WatchdogTimeout(getenv func(string) string, pid int) (time.Duration, error) {
	text := getenv("WATCHDOG_USEC")
	if who := getenv("WATCHDOG_PID"); text == "" || who != "" && who != strconv.Itoa(pid) {
		return 0, nil
	}
	usec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || usec <= 0 || usec > int64(365*24*time.Hour/time.Microsecond) {
		return 0, fmt.Errorf("systemd: WATCHDOG_USEC %q is no time in microseconds", text)
	}
	return time.Duration(usec) * time.Microsecond, nil
}
