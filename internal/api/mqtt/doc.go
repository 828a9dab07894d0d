// Package mqtt takes readings that gateways publish with MQTT 3.1.1 and 5.0. It is an input of package
// ingest, not a broker: nothing can be subscribed to.
//
// # Promise
//
//   - PUBACK and PUBREC without an error leave after the sync of every reading of the publication, in the order of the
//     publications of a connection.
//   - A publication that cannot be stored now is not acknowledged: its connection is not read until it can be,
//     or is closed.
//   - A rejected publication is acknowledged, with a reason in version 5, because a client of version 3.1.1 would
//     send it again for ever. It is then in the list of rejections.
//   - A malformed packet ends its connection, and no other one.
//
// # Two lanes
//
// A connection begins on an event loop ([ingest.Lane]), which handles every packet of up to
// fastparse.MaxBodyBytes. The usual PUBLISH is recognised by fastparse.RecognisePublish; all other packets are decoded
// by github.com/mochi-mqtt/server/v2/packets after checks that it lacks. A connection with a
// larger publication, or with one that needs several groups, moves to a goroutine of its own for good. Where there is
// no event loop, every connection has one. Both call the same functions of a session: [session.control] and
// [service.publication].
//
// # Not here
//
// Decoding, limits, tokens and commits are those of package ingest.
package mqtt
