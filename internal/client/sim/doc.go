// Package sim is a fleet of simulated gateways: it loads a server, measures
// latency, writes down what the server acknowledged, and proves afterwards that
// all of it is stored.
//
// The way of one request:
//
//  1. A wearer, one of a [Fleet]'s devices, yields its next reading: a function
//     of the seed, the device and the reading's number alone.
//  2. A gateway, one connection, puts readings into a request, and does to it
//     what real gateways do: batching, buffering, compression, repetition.
//  3. The readings are written to the ledger, and only then sent.
//  4. The answer is held against the documented ones, counted, timed, and
//     written to the ledger.
//
// # Promise
//
// Every reading that was sent is counted once: stored, duplicate, rejected or
// failed. Open-loop latency counts from the moment at which a request was meant
// to be sent, and requests that were never answered count with the time that
// they waited, so that a server that stalls shows. An acknowledgement stands in
// the ledger if and only if the server gave it; [Verify] finds every
// acknowledged reading that is missing, altered or doubled, and every stored one
// that was never sent.
//
// Memory is bounded by the number of connections and devices and the size of a
// batch, not by the length of a run; that of Verify by one share of the ledger.
//
// # Concurrency
//
// One goroutine owns a run: it decides what is sent and when, writes the ledger and
// counts. Each connection has a goroutine that carries out one try after another,
// takes the times, and shares nothing with the others.
//
// # Not here
//
// No terminal and no flags: the command shows what this package reports. No
// opinion about a good latency.
package sim
