package verify

import "time"

// ScrubRate is scrubRate.
func ScrubRate(bytes int64, left time.Duration) int64 { return scrubRate(bytes, left) }

// RewriteScrubState parses a text as the state of the scrub, and formats it again.
func RewriteScrubState(text []byte) ([]byte, error) {
	st, err := parseScrub(text)
	if err != nil {
		return nil, err
	}
	return st.text(), nil
}
