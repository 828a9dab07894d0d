// Package oidc accepts people and services whom an OpenID Connect provider vouches for.
//
// # Promise
//
//   - A JWT is accepted if a key of the provider has signed it with RS256, ES256 or EdDSA, if
//     it has the provider's issuer, this server's client ID among its audiences and, if it
//     names a client, one of [Options], and if it is valid now, give or take [Skew].
//   - [Cached] neither allocates nor takes a lock. It returns what [Provider.Verify]
//     has accepted, until the token expires, or the keys or the rules change. The cache is bounded.
//   - Nothing that a client sends makes requests to the provider more often than once in
//     [MinFetch]. No request waits for the provider: a token whose key is not known is
//     [ErrUnavailable] until the keys have been fetched.
//   - While the provider is away, tokens signed with known keys are accepted.
//   - No error contains a token or a claim.
//
// # Use
//
// The gate calls Cached and Verify for bearer tokens. A sign-in in a browser uses
// [Provider.Discovered] and [Provider.Client] with golang.org/x/oauth2, and then
// [Provider.VerifyIDToken], whose [Person] has a [token.Principal] by the rules at that time.
//
// # Not here
//
// The protocol: github.com/coreos/go-oidc. Sessions and rights for a request: package gate.
package oidc
