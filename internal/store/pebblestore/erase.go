package pebblestore

// erasureFile is there while an erasure has yet to be finished.
const erasureFile = "ERASING"
