// Package live serves the newest readings of devices while they arrive, as a stream of
// Server-Sent Events.
//
// # Promise
//
//   - A reading is sent after it is durable, and only if it is the newest of its device by
//     the time of its measurement: late readings are stored, but not sent.
//   - A device has at most one event per commit and four per second. What a subscriber has
//     received last of a device, once commits pause, is the device's newest reading;
//     TestModel checks it.
//   - An event names the subject to which the device was assigned at the time of the reading, as stored when the
//     event is sent.
//   - A slow subscriber delays neither commits nor other subscribers. It gets the number of
//     events that it missed, and the latest readings.
//   - A subscriber gets only devices that it may read, or was allowed to read until half a
//     second ago. Nothing is written after the right to read was found to be lost.
//   - After [Hub.Erased], no erased value of that device is written. If one is being written,
//     its stream is cut. The inbox may hold one until its next round, some milliseconds.
//   - Alerts that begin or end are sent in their order to the subscribers that may read their devices. A
//     subscriber that does not get one is told that it missed events.
//
// # Goroutines
//
// The committer's goroutine calls [Hub.Publish]. Without subscribers, that is one atomic
// load. Otherwise it copies what was stored into the inbox, once for all subscribers, and
// never waits: if the inbox is full, readings are counted as lost instead.
//
// One dispatcher, which New starts and Close ends, takes the inbox. It keeps a state per
// watched device, and asks the store if a reading alone does not show whether it is the newest,
// or if it completes an earlier one. It formats one text per event and marks the device as
// pending for each subscriber that watches it. It also checks the access of all
// subscribers again, twice a second. It never writes to a connection.
//
// The handler of each subscriber, on net/http's goroutine, takes the pending devices and
// writes their latest texts. So a slow subscriber holds names of devices, not a queue of
// events: what it missed is superseded in place. If it has too many of them, or resumes, it
// reads the latest readings of its devices from the store, a page at a time.
//
// # Locks
//
// Hub.mu guards everything that is shared but the inbox: the board and the queues of subscribers. It is
// not held while the store is called, which may call Erased, nor while something is written. Because the store is read
// without a lock, an erasure may come between. Each erasure changes a number, so the dispatcher and the handlers notice
// it and read again. stream.mu guards the write deadline; it is taken last.
//
// # Bounds
//
// Options.MaxSubscribers, divided among clients; an inbox of readings, twice; maxStates
// devices; maxPending devices, and as many alerts, per subscriber; MaxDevices in a request; [eventsPerWrite]
// events per write, each write with a deadline.
//
// # Not here
//
// No history: a client reads older readings with package query.
package live
