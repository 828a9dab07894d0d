// Package tlsfiles serves TLS with certificates from files that may be renewed while
// the server runs, and determines which gateway a client certificate names.
//
// # Promise
//
//   - A new certificate is used for new connections; open connections are not
//     disturbed.
//   - Certificate, key and client CAs take effect together or not at all. A pair that
//     does not match, or a file that cannot be read, changes nothing and is reported.
//     Tools replace the two files one after the other: a check in between finds a pair
//     that does not match, and the next check finds the new pair.
//   - The minimum version is TLS 1.2; cipher suites, curves and everything else are the
//     defaults of crypto/tls.
//   - A session is not resumed if its client certificate is not signed by one of the
//     CAs in use. crypto/tls ensures that, and TestRemovedCA checks it. For an open
//     connection, ask [Files.Trusts].
//
// # The gateway's name
//
// A client certificate names its gateway in one of two places:
//
//  1. a URI among its subject alternative names, pulsegate:gateway:NAME, if there is
//     exactly one such URI;
//  2. otherwise the common name of its subject.
//
// A URI with a scheme of its own is unambiguous, but takes more than a simple openssl
// command to create; small private CAs usually set the common name. DNS names are
// ignored: they say where a host is reached, and many CAs sign them for anyone who
// controls the host.
//
// The CA file decides who is trusted: every client certificate signed by one of its CAs
// is accepted under the name that it bears. Use a CA that signs for this purpose only,
// never a public one.
//
// # Not here
//
// No revocation lists and no OCSP: remove a lost gateway's CA, use certificates that
// live for days, or use tokens. No creation of certificates. No rights: the caller
// decides what a gateway may do.
package tlsfiles
