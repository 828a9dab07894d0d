// Package answers holds the starting points of this project that are about
// answers, each as the same handler in three forms:
//
//   - before: as services often have it;
//   - after: with the improvement that its authors found;
//   - pulsegate: with this project's packages.
//
// The benchmarks of this package compare them side by side:
//
//	go test -bench . -count 10 ./answers | go tool -modfile=../tools/go.mod benchstat -col /impl -
//
// Every form's answer is checked before it is measured. What it may allocate is
// asserted in smoke_test.go, one folder up.
//
// # Sources
//
// The forms before and after are written anew from their descriptions.
//
//   - [Health]: a health endpoint that marshals a struct per request, and one
//     that writes bytes prepared at start (github.com/runatlantis/atlantis, pull
//     request 2014).
//   - [HeaderForms]: http.Header.Set, which makes a slice per field, and one slice
//     per field shared by all responses. The second is a data race as soon as two
//     responses are written at a time. It is here as the measure of how fast an
//     unsafe way is.
//   - [Vitals]: a vital-signs service that logs every request and marshals every
//     answer, and the same without either. Storage is switched off.
//
// Routes, the fourth starting point, are in bench/routers.
package answers
