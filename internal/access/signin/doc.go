// Package signin signs people in at an OpenID Connect provider, and out again.
//
// # Promise
//
//   - A [Login] is of the person who used the browser that has begun the sign-in: the provider's answer must have the
//     state, and its ID token the nonce, that belong to a secret of this browser, and the code is of
//     no use without it (PKCE).
//   - A login ends within [EndAfter], and a few seconds, after the provider no longer confirms the account, and when
//     the
//     provider has not answered for as long.
//   - A sign-in that has begun takes no memory. At most [MaxFinishing] are finished at a time.
//   - No error contains a token, a code or a claim.
//
// # Use
//
// Give the browser a secret in a cookie, and send it to [Flow.Begin]. When it comes back, call [Flow.Finish]. Call
// [Login.Principal] for each request, and [Login.End] once.
//
// # Not here
//
// Cookies and sessions: package gate. Signatures and rules: package oidc. The protocol: golang.org/x/oauth2.
package signin
