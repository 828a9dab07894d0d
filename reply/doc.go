// Package reply provides answers that are prepared once and sent often, with header
// values and problem documents. It depends only on the standard library.
//
// # Promise
//
// An [Answer] is prepared when it is created: the body is marshalled and the header
// fields are formatted. Serving it does not allocate and is safe for concurrent use.
// The response is correct HTTP: it has a Content-Length, no body for HEAD, and
// X-Content-Type-Options: nosniff.
//
// # Kinds of answers
//
//  1. Constant answers: [New] or [JSON] return an [Answer].
//  2. Constant header, variable body: [NewHead] returns a [Head].
//  3. Errors: [NewProblem] returns a [Problem] as defined by RFC 9457. Its constant
//     occurrences are Answers; the others are built in a pooled buffer.
//
// Each can write to an [http.ResponseWriter]. An Answer and a Head can also append
// themselves as an HTTP/1.1 message, for a server that writes to its connections directly
// ([HTTP1]); a Problem does so by its Head.
//
// # Header values
//
// The values of an [http.Header] are []string, so Header.Set allocates a slice for
// every field of every response. Reusing one slice for different texts would be a data
// race: net/http reads some slices after the handler has returned, and the bytes of the
// strings even later. The slices of this package are shared but never modified:
// [Value], [IntValue] for small integers, and all fields that an Answer sets.
//
// They have no spare capacity, so that Header.Add copies the slice instead of writing
// to it. Code that modifies an existing element (h["Allow"][0] = …) must not be used
// with the same header; net/http does not do that.
//
// # Not here
//
// No routing and no logging. No compression and no conditional requests: large content
// should be a file, which net/http can serve. No pool of variable header values:
// net/http does not report when it has read them.
package reply
