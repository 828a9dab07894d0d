// Package token identifies the sender of a request by its token, and what that token
// allows.
//
// # A token
//
// A token is the text that a client sends as "Authorization: Bearer TOKEN":
//
//	pgt_ + base64url(secret ‖ crc)        52 bytes in all, without padding
//
// secret is 256 random bits. crc is the CRC-32C, big-endian, of "pgt_" and the secret.
// It is no protection. It distinguishes a typing error or a truncated copy from a
// revoked token without reading the file, and lets a scanner for leaked secrets
// recognise a token: pgt_[A-Za-z0-9_-]{48} with a matching crc. 36 bytes are exactly 48
// base64 digits, so each token has only one spelling.
//
// A token is shown once, when it is created. Only its digest is kept, the SHA-256 of
// its 52 bytes. A fast hash without salt is enough: 256 random bits cannot be guessed
// at any speed.
//
// The first 48 bits of the digest are the token's [ID]. It names the token in lists, in
// logs and for revocation, and reveals nothing about the secret. To get the ID of a
// leaked token:
//
//	printf %s "$TOKEN" | sha256sum | cut -c1-12
//
// # What a token is bound to
//
//   - the name of its holder, usually a gateway: readings written with the token come
//     from that gateway;
//   - rights: [Write], [Read] and [Admin]. None of them includes another;
//   - optionally a prefix: the token then covers only devices whose names begin with
//     it, for writing and for reading;
//   - optionally subjects: the token then reads only what was measured of these patients, and
//     has no other right;
//   - optionally an expiry time and a rate;
//   - optionally a kiosk, whose sessions in a browser last as long as the token; see [KioskCookie].
//
// # The file
//
// [Parse] documents the format. A [Keeper] changes the file, and records each change in
// the audit log. A [Set] holds the file's tokens in a running server and reloads them
// when the file changes.
//
// # Promise
//
//   - Looking up a token neither allocates nor takes a lock, and its timing does not
//     help to guess a token; see [Set.Lookup].
//   - A file that is damaged, truncated or writable by others is rejected as a whole; a
//     running Set then keeps the tokens that it has.
//   - Concurrent changes of the file are serialized, so none is lost. A crash leaves
//     the file either unchanged or completely changed.
//   - No error text contains a token or a digest.
//
// # Not here
//
// No HTTP: the caller turns an error or a missing right into a response. No logging:
// the caller logs in [Options.OnChange].
package token
