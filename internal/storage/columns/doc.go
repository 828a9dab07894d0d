// Package columns encodes rows of stored readings as columns: a segment has up to 1,024
// rows of one device, a group has the rows of many devices that were written at once.
//
// # Promise
//
// Decoding returns exactly the rows that were encoded. Equal rows have equal encodings.
// No decoder panics or allocates more than for the rows that it returns.
//
// [DecodeSegment] and [DecodeGroup] check the checksum, the structure and every bound; they
// are fast enough for every read. [VerifySegment] and [VerifyGroup] also encode the rows
// again, so that they accept only what the encoder writes.
//
// # Not here
//
// No keys and no I/O: the store has them. No names of gateways: rows have the numbers of
// the store's dictionary.
package columns
