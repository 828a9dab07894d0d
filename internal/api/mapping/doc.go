// Package mapping takes payloads that others designed. It is an input of package ingest, configured by files.
//
// # Promise
//
//   - What a payload has is read as package shape says.
//   - [Read] rejects a mapping that cannot be meant, with file, line, field and reason.
//   - What a payload lacks is not guessed: not a unit, not a zone, not a time, unless the mapping says "received".
//   - Neither values nor texts of a payload are in an error.
//
// # A message
//
// A message has one payload or several, each a JSON value. A mapping is chosen for each by what its "where" says, the
// first one that fits. [Set.Named] and [Set.OfTopic] return the inputs. Pointers (RFC 6901) name what is read; in
// place of an index, - stands for each element of an array, and each of them is then a reading; arrays may be in the
// elements of another.
//
// # Not here
//
// Topics and addresses are matched by those who call the inputs. Nothing is computed from several values.
package mapping
