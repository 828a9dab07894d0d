// Package sim simulates a fleet of gateways: it loads a server, measures latency,
// records what the server acknowledged in a ledger, and verifies afterwards that all of
// it is stored.
//
// The path of one request:
//
//  1. A wearer, one of a [Fleet]'s devices, generates its next reading, which depends
//     only on the seed, the device and the number of the reading.
//  2. A gateway, one connection, composes a request from readings and behaves like real
//     gateways: batching, buffering, compression, repetition.
//  3. The readings are written to the ledger, and only then sent.
//  4. The answer is checked against the contract, counted, timed, and written to the
//     ledger.
//
// # Promise
//
// Every reading that was sent is counted once: as stored, duplicate, rejected or
// failed. Open-loop latency is measured from the intended send time, and requests that
// were never answered count with the time that they waited, so a stalled server is
// visible. The ledger has an acknowledgement if and only if the server gave it.
// [Verify] detects every acknowledged reading that is missing, altered or doubled, and
// every stored one that was never sent.
//
// Memory is bounded by the number of connections and devices and the size of a batch,
// not by the length of a run. The memory of Verify is bounded by one share of the
// ledger.
//
// # Concurrency
//
// One goroutine owns a run: it decides what is sent and when, writes the ledger and
// counts. Each connection has a goroutine that performs one try after another, measures
// its times, and shares nothing with the others. Over MQTT, the tries of a gateway share
// its connection, which has a goroutine that writes and one that reads.
//
// # Not here
//
// No terminal and no flag parsing: the command shows the reports. No judgement of what
// a good latency is.
package sim
