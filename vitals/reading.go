package vitals

// A Reading has the values that one wearable measured at one time.
//
// Each value is identified by device, time and sign. A Reading has no pointers, so it
// may outlive the buffer from which it was decoded.
type Reading struct {
	Device     Name  // the wearable; required
	Gateway    Name  // the gateway that sent it; optional, not part of the identity
	TimeUnixMs int64 // time of the measurement, in ms since 1970-01-01T00:00:00Z; truncated

	// UTCOffset is the offset from UTC with which the time was given. It is optional and
	// not part of the identity.
	UTCOffset UTCOffset

	Values Values // at least one sign; last, because the end of it is often not used
}

// reset makes r the zero Reading.
func (r *Reading) reset() {
	r.Device, r.Gateway, r.TimeUnixMs, r.UTCOffset = Name{}, Name{}, 0, 0
	r.Values.Reset()
}
