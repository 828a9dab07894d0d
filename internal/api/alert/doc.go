// Package alert knows which alerts are active, by rules about what is stored.
//
// # Promise
//
//   - Whether an alert is active depends on the stored readings, the rules and the time only: not on the
//     order in which readings arrived, and not on when the server was started, but for Options.Grace. [Rule]
//     and [Lasts] say how.
//   - It is not an alarm system: alerts are evaluated after readings are stored, from what has arrived.
//   - Evaluation never delays a commit: [Engine.Publish] copies what matters of what was stored and never waits. What
//     it has no room for is read from the store.
//   - An assignment neither begins nor ends an alert: alerts are of devices. Clients who see who wears a device are
//     shown the part of an alert that lies in the present assignment.
//   - A past alert is evaluated when it is asked for, by the rules in force: [Replay]. It is divided where assignments
//     of
//     its device begin and end, and each part names its subject, as readings do.
//   - No measured value is in an alert, and no subject in an active one. Neither is kept.
//
// # Goroutines and locks
//
// [Engine.Run] is one goroutine. It takes updates, adds them to runs in memory, and reads the runs of a
// device from the store where that is not enough: before an alert begins or ends, for late and completed readings,
// after erasures, and where a sweep over all devices finds a difference. Engine.mu guards all that is shared; it is not
// held while the store is called, which may call [Engine.Erased].
//
// # Bounds
//
// 32 bytes for each device and rule and 200 for each device, within Options.MaxBytes; up to 200 more for each device
// with alerts; an inbox of readings, maxChanges alerts that have begun or ended. MaxReplays evaluations of past alerts
// at a time, of up to MaxReplayed readings.
//
// # Not here
//
// Routing, grouping, silencing and delivery: Prometheus Alertmanager does these.
package alert

// Notice must be shown wherever alerts are shown.
const Notice = "Pulsegate is not a medical alarm system (IEC 60601-1-8): alerts follow what has been stored, and may " +
	"be late or missing."
