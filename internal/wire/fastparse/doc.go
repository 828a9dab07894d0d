// Package fastparse recognises exactly one shape of HTTP request in the bytes of a
// connection: a POST of readings as nearly every client sends it.
//
// # Promise
//
// When [Recognise] accepts a request, net/http parses it to the same method, target,
// framing and body, and closes the connection after it exactly if [Request.Close] is
// set. A server may therefore answer accepted requests without a general HTTP
// implementation, and hand every other connection to one. TestAgainstNetHTTP and
// FuzzRecognise compare Recognise with net/http.
//
// The converse does not hold: many valid requests are not accepted. In doubt the verdict
// is [Other], because request smuggling exploits what two parsers read differently (RFC
// 9112, section 11.2).
//
// # The shape
//
//	POST /v1/readings HTTP/1.1 CRLF
//	Host: a name, an address, a port     once
//	Content-Length: digits               once, 1 to 65536, no leading zero
//	Connection: keep-alive | close       at most once
//	Content-Type, User-Agent, Accept, Accept-Encoding, Authorization,
//	Traceparent, Tracestate              at most once each, any text
//
// Names are case-insensitive. At most one space follows the colon. A value is not empty,
// begins and ends with a visible character, and contains visible ASCII and spaces only.
// Lines end with CR LF. No other field is accepted, in particular not Transfer-Encoding,
// Expect, Upgrade, Trailer or Content-Encoding in any spelling.
//
// # Not here
//
// Recognise does no I/O, keeps no state between calls, and does not check the body.
package fastparse
