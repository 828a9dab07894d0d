package vitals

// A Reading is what one wearable measured at one moment.
//
// A value of it is identified by device, time and sign. A Reading holds no
// pointers: it may outlive the buffer that it was decoded from.
type Reading struct {
	Device     Name   // the wearable; required
	Gateway    Name   // the gateway that sent it; optional, takes no part in identity
	TimeUnixMs int64  // when it was measured, in ms since 1970-01-01T00:00:00Z; finer digits were cut
	Values     Values // at least one sign
}
