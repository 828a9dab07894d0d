package report

import (
	"fmt"
	"strings"
	"time"
)

// An Idle has the memory cost of idle connections.
type Idle struct {
	Setting     Setting
	Rounds      int
	Connections int
	Wait        time.Duration // until Later
	Servers     []IdleServer
}

// An IdleServer is one of the servers.
type IdleServer struct {
	Name, What string
	Runs       []IdleRun
}

// An IdleRun is the resident memory of a server, in bytes.
type IdleRun struct {
	None uint64 // with no connection
	All  uint64 // with all of them

	Later uint64 // with all of them, after a time in which nothing was sent; 0: not measured
}

// MiB returns bytes in MiB.
func MiB(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// more returns the memory of all connections together, in MiB.
func (r *IdleRun) more() float64 { return MiB(r.All) - MiB(r.None) }

func (s *IdleServer) figure(of func(*IdleRun) float64) Spread {
	values := make([]float64, len(s.Runs))
	for i := range s.Runs {
		values[i] = of(&s.Runs[i])
	}
	return SpreadOf(values)
}

// Markdown formats the figures as the block of the page.
func (d *Idle) Markdown() string {
	var b strings.Builder
	b.WriteString(d.Setting.markdown())
	fmt.Fprintf(&b, "- Load: as many connections are opened, post a reading and are closed; then %d connections post one reading each and stay open\n", d.Connections)
	fmt.Fprintf(&b, "- Rounds: %d, in each of which every server is restarted\n\n", d.Rounds)
	b.WriteString("Resident memory of the server's process (VmRSS): medians, with the range over the rounds in brackets. Kernel memory for sockets is not included.\n\n")
	fmt.Fprintf(&b, "| server | with none, MiB | with %d, MiB | more, MiB | bytes a connection | with %d after %v, MiB |\n|---|--:|--:|--:|--:|--:|\n", d.Connections, d.Connections, d.Wait)
	bar := goal{what: fmt.Sprintf("%d idle connections: MiB more than with none", d.Connections), limit: 60, format: "%.1f"}
	barTLS := goal{what: fmt.Sprintf("%d idle connections over TLS: MiB more than with none, after %v", d.Connections, d.Wait), limit: 100, format: "%.1f"}
	for i := range d.Servers {
		s := &d.Servers[i]
		if len(s.Runs) == 0 {
			continue
		}
		more := s.figure((*IdleRun).more)
		laterText := ""
		if s.Runs[0].Later > 0 {
			laterText = s.figure(func(r *IdleRun) float64 { return MiB(r.Later) }).text("%.1f")
		}
		fmt.Fprintf(&b, "| **%s**: %s | %s | %s | %s | %.0f | %s |\n", s.Name, s.What,
			s.figure(func(r *IdleRun) float64 { return MiB(r.None) }).text("%.1f"),
			s.figure(func(r *IdleRun) float64 { return MiB(r.All) }).text("%.1f"),
			more.text("%.1f"), more.Median*(1<<20)/float64(d.Connections),
			laterText)
		switch s.Name {
		case Own:
			bar.figure, bar.known = more, true
		case Own + " over TLS":
			barTLS.figure, barTLS.known = s.figure(func(r *IdleRun) float64 { return MiB(r.Later) - MiB(r.None) }), true
		}
	}
	goalsTable(&b, []goal{bar, barTLS})
	return b.String()
}
