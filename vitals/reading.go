package vitals

// A Reading has the values that one wearable measured at one time.
//
// Each value is identified by device, time and sign. A Reading has no pointers, so it
// may outlive the buffer from which it was decoded.
type Reading struct {
	Device     Name   // the wearable; required
	Gateway    Name   // the gateway that sent it; optional, not part of the identity
	TimeUnixMs int64  // time of the measurement, in ms since 1970-01-01T00:00:00Z; truncated
	Values     Values // at least one sign

	// UTCOffset is the offset from UTC with which the time was given. It is optional and
	// not part of the identity.
	UTCOffset UTCOffset
}
