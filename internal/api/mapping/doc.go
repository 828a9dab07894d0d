// Package mapping takes payloads that others designed. It is an input of package ingest, configured by files.
//
// # Promise
//
//   - A value is stored as the payload has it, or times a factor that the mapping names, exactly: one that does not
//     fit the decimals of its sign is rejected. Units are compared, not converted, but for a few factors that are exact.
//   - [Read] rejects a mapping that cannot be meant, with file, line, field and reason.
//   - What a payload lacks is not guessed: not a unit, not a zone, not a time, unless the mapping says "received".
//   - Neither values nor texts of a payload are in an error.
//
// # A message
//
// A message has one payload or several, each a JSON value. A mapping is chosen for each by what its "where" says, the
// first one that fits. [Set.Named] and [Set.OfTopic] return the inputs. Pointers (RFC 6901) name what is read; in
// place of an index, - stands for each element of an array, and each of them is then a reading.
//
// # Not here
//
// Topics and addresses are matched by those who call the inputs. Nothing is computed from several values.
package mapping
