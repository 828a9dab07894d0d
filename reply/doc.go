// Package reply holds answers that are prepared once and sent often, and the
// header values, problem documents and small texts that go with them. It needs
// the standard library only.
//
// # Promise
//
// An [Answer] does all of its work when it is made: the body is marshalled and
// compressed, the header fields are laid out, the entity tag is computed. To
// serve it allocates nothing and is safe for concurrent use. What it sends is
// correct HTTP: Content-Length, no body for HEAD, 304 where the answer may be
// cached and the client has it already, the best of its encodings with Vary,
// and X-Content-Type-Options: nosniff.
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
// text into it saves the allocation and is a data race. This package knows
// three ways that are not:
//
//   - A slice that is never written after it was made: [Value], [IntValue] for
//     small integers, [Clock.Date], and whatever an Answer sets.
//   - A slice of a bounded table whose entries are immutable: [Interner]. An
//     entry that is displaced stays as it was; the garbage collector waits for
//     its last reader.
//   - A slice that is written again, but only once nothing can reach it:
//     [Pool.WriteHeader].
//
// All of them have no spare capacity, so that Header.Add on top of one copies
// and does not write into it. Code that writes into an existing element
// (h["Vary"][0] = …) must not be used on the same header; net/http has none.
//
// # When net/http reads a header
//
// As of Go 1.26, by the sources net/http/server.go, net/http/h2_bundle.go and
// net/http/httptest/recorder.go. The tests in reads_test.go hold the statements
// that a test can hold, and fail when a later Go behaves otherwise.
//
//   - WriteHeader with a final status (200 and above) copies the map and the
//     slices, for HTTP/1 and for HTTP/2. From then on the slices are not read
//     again, trailers excepted.
//   - A handler that neither writes nor calls WriteHeader is followed by an
//     implicit WriteHeader(200) after it has returned: its slices are read then.
//   - The copy is of slices, not of the bytes of the strings. These are read when
//     the header goes out: when 2,048 bytes of body have gathered, at a Flush,
//     or after the handler has returned. With HTTP/2 another goroutine reads
//     them, and when the client resets the stream it may do so after the
//     response is over for the handler. The bytes of a header value can
//     therefore never be used again. This package does not do so.
//   - Trailers are read from the live map after the handler has returned.
//   - An informational header (1xx) is sent from the live map; with HTTP/2 by
//     another goroutine, which may still read when WriteHeader has returned.
//   - [http.TimeoutHandler] gives its handler a header of its own and copies the
//     map, not the slices, after that handler has returned. A handler that is
//     out of time runs on beside the connection's next request.
//   - A ResponseRecorder of httptest copies at WriteHeader, and shows the live
//     map by Header as long as the test likes.
//   - An HTTP/2 Write that returned an error may still be reading the bytes that
//     it was given. A pooled body may be used again after a Write without error
//     only.
//
// So "the handler has returned" is never a reason to use a slice again, and
// "WriteHeader has returned" is one only if the ResponseWriter is the server's
// own.
//
// # Not here
//
// No routing, no logging, no compression library: gzip variants are made at
// start by compress/gzip, others are handed in as bytes. No ranges and no
// Last-Modified: files are net/http's business.
package reply
