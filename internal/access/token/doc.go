// Package token decides who a request comes from and what it may do.
//
// # A token
//
// A token is the text that a client sends as "Authorization: Bearer TOKEN":
//
//	pgt_ + base64url(secret ‖ crc)        52 bytes in all, without padding
//
// secret is 256 random bits. crc is the CRC-32C, big-endian, of "pgt_" and the
// secret. It keeps nobody out; it lets a typing error and a cut-off copy be told
// from a revoked token without the file, and lets a scanner for leaked secrets
// tell a token from chance: pgt_[A-Za-z0-9_-]{48} with a matching crc. 36 bytes
// are exactly 48 base64 digits, so that a token has one spelling only.
//
// A token is shown once, when it is made. Kept is its digest, the SHA-256 of its
// 52 bytes. A plain, fast hash is enough: a secret of 256 random bits cannot be
// guessed, however fast the guesses, so there is nothing for salt or for a slow
// hash to protect.
//
// The first 48 bits of the digest are the token's [ID]. It names the token in
// lists, in logs and for revocation, and says nothing about the secret. Whoever
// finds a leaked token gets its ID with
//
//	printf %s "$TOKEN" | sha256sum | cut -c1-12
//
// # What a token is bound to
//
//   - a gateway's name, or whoever else holds it: readings that are written with
//     it come from that gateway;
//   - rights: [Write], [Read] and [Admin]. None of them includes another;
//   - optionally a prefix: the token then covers only devices whose names begin
//     with it, for writing as for reading;
//   - optionally an end of its validity, and a rate.
//
// # The file
//
// See [Parse] for its form, [Create] and [Revoke] for its changes, and [Keeper] for
// those that the audit log is to have. A [Set] holds
// the file's tokens for a running server and follows its changes.
//
// # Promise
//
//   - Looking up a token neither allocates nor takes a lock, and the time it
//     takes tells nothing that helps to guess a token; see [Set.Lookup].
//   - A file that is damaged, cut off or writable by others is refused whole, and
//     a running Set then keeps what it had.
//   - Two commands that change the file at one time lose neither change, and a
//     crash leaves the file as it was before or as it is after a change.
//   - No token and no digest is in an error's text.
//
// # Not here
//
// No HTTP: the caller turns an error or a missing right into an answer. No log:
// [Options.Changed] is where it joins.
package token
