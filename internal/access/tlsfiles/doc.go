// Package tlsfiles serves TLS with certificates from files that may be renewed
// while the server runs, and tells which gateway a client's certificate names.
//
// # Promise
//
//   - A new certificate is used by connections that begin after it was read; those
//     that are open go on undisturbed.
//   - Certificate, key and client CAs are put into use together or not at all. A
//     pair that does not fit, or a file that cannot be read, changes nothing and is
//     reported. Tools replace the two files one after the other: a look between
//     the two finds a pair that does not fit, and the next look the new pair.
//   - TLS 1.2 is the least version; suites, curves and everything else are the
//     defaults of crypto/tls.
//   - A session whose client certificate is not signed by one of the CAs in use is
//     not resumed. crypto/tls sees to that; TestRemovedCA holds it to it. Of a
//     connection that is open [Files.Trusts] tells it.
//
// # The gateway's name
//
// A client certificate names its gateway in one of two places:
//
//  1. a URI among its alternative names, pulsegate:gateway:NAME, where there is
//     exactly one such URI;
//  2. otherwise the common name of its subject.
//
// A URI of the project's own cannot be taken for anything else, but it takes more
// than a plain openssl line to make one; the common name is what small private
// CAs set. DNS names are not looked at: they say where a host is reached, and many
// CAs sign them for whoever controls the host.
//
// The CA file decides who gets in: every certificate that a CA in it has signed
// for clients is let in under the name it bears. Use a CA that signs for this
// purpose alone, never a public one.
//
// # Not here
//
// No revocation lists and no OCSP: take a lost gateway's CA out, use certificates
// that live for days, or use tokens. No making of certificates. No rights: what a
// named gateway may do is decided by who asks.
package tlsfiles
