// Package influx accepts readings in InfluxDB's line protocol, at the addresses where clients of
// InfluxDB 1 and 2 write, and answers as these clients expect.
//
// # Promise
//
// A line is a reading: its tags name the device and the gateway, its fields are signs, or [Mappings] say
// where it has these. 204 means that the readings of all lines are on stable storage, but for those that
// a mapping leaves out. A line of which anything cannot be stored as it was sent is rejected as a whole,
// by its number, the field and the reason.
//
// # Not here
//
// There are no databases, buckets, measurements and other tags: they are accepted, because clients
// send them, and not stored. There are no queries.
package influx
