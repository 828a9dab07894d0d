package datadir

// Direct reports whether all reads so far bypassed the page cache.
func (f *ChunkedFile) Direct() bool { return f.direct }
