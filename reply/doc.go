// Package reply holds answers that are prepared once and sent often, and the
// header values and problem documents that go with them. It needs the standard
// library only.
//
// # Promise
//
// An [Answer] does all of its work when it is made: the body is marshalled and
// the header fields are laid out. To serve it allocates nothing and is safe for
// concurrent use. What it sends is correct HTTP: Content-Length, no body for
// HEAD, and X-Content-Type-Options: nosniff.
//
// # Kinds of answers
//
//  1. Nothing varies: [New] or [JSON], an [Answer].
//  2. The body varies, the header does not: [NewHead], a [Head].
//  3. A refusal: [NewProblem], a [Problem] as defined by RFC 9457. Its fixed
//     occurrences are Answers; the others are built in a pooled buffer.
//
// Each of them writes to an [http.ResponseWriter], and each appends itself as an
// HTTP/1.1 message for a server that writes its own bytes ([HTTP1]).
//
// # Header values
//
// An [http.Header] maps to []string, so that Header.Set allocates a slice for
// every field of every response. To share one slice and write each response's
// text into it saves the allocation and is a data race: net/http reads some
// slices after the handler has returned, and the bytes of the strings later
// still. The slices of this package are shared and never written after they were
// made: [Value], [IntValue] for small integers, and whatever an Answer sets.
//
// They have no spare capacity, so that Header.Add on top of one copies and does
// not write into it. Code that writes into an existing element
// (h["Allow"][0] = …) must not be used on the same header; net/http has none.
//
// # Not here
//
// No routing, no logging, no compression and no conditional requests: what is
// large enough for those is a file, and files are net/http's business. No pool
// of header values that differ from response to response: net/http does not
// report when it has read them.
package reply
