package groupcommit

// FreeGroups returns the number of used groups that c keeps, and the capacity for
// items of the largest one. c must be idle.
func (c *Committer[T]) FreeGroups() (groups, maxPlaces int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.free {
		maxPlaces = max(maxPlaces, cap(g.items))
	}
	return len(c.free), maxPlaces
}
