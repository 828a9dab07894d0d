package share

// Len returns the number of holders in use.
func (hs *Holders) Len() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.byKey)
}
