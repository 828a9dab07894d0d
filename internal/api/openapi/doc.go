// Package openapi describes the public API in an OpenAPI 3.1 document, and serves it.
//
// # Promise
//
// The document has every address of the public listener, and for each of its methods
// every parameter, status, header, media type and problem. HEAD and OPTIONS are left out: they
// work everywhere, and would be operations of their own in generated clients. Limits, defaults,
// names, units and ranges are those of the running server: they come from its options and from
// the tables of the code that applies them. What the document states in its own words, the tests
// in docs/test hold against a server, in both directions. They also generate clients from it,
// whose needs decide between schemas that state the same.
//
// # Not here
//
// No routing, and no validation of requests: the packages of the addresses do that.
package openapi
