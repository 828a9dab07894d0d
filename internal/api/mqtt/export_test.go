package mqtt

import "fmt"

// Counters are the counters that tests compare and wait for.
type Counters struct {
	Accepted, Refused uint64
	Publications      [3]uint64 // by QoS
	Endings           string    // those that occurred, by reason
}

// Counters returns the counters of s.
func (s *Server) Counters() (c Counters) {
	c.Accepted, c.Refused = s.counters.accepted.Load(), s.counters.refused.Load()
	for i := range s.counters.publications {
		c.Publications[i] = s.counters.publications[i].Load()
	}
	for i := range s.counters.endings {
		if n := s.counters.endings[i].Load(); n > 0 {
			c.Endings += fmt.Sprint(endingTexts[i], " ", n, " ")
		}
	}
	return c
}

// Ended returns how many connections have ended for each reason.
func (s *Server) Ended() map[string]uint64 {
	ended := map[string]uint64{}
	for i := range s.counters.endings {
		ended[endingTexts[i]] = s.counters.endings[i].Load()
	}
	return ended
}

// Slowed returns how often a connection was not read because of a burst of packets.
func (s *Server) Slowed() uint64 { return s.counters.slowed.Load() }
