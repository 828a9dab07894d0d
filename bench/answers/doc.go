// Package answers compares ways to answer requests. Each starting point of this project
// is the same handler in three forms:
//
//   - before: as often found in services;
//   - after: with the improvement found by its authors;
//   - pulsegate: with the packages of this project.
//
// The benchmarks of this package compare them side by side:
//
//	go test -bench . -count 10 ./answers | go tool -modfile=../tools/go.mod benchstat -col /impl -
//
// The answer of every form is checked before it is measured. smoke_test.go in the
// parent directory asserts allocations.
//
// # Sources
//
// The forms before and after are rewritten from their descriptions.
//
//   - [Health]: a health endpoint that marshals a struct per request, and one that
//     writes prepared bytes (github.com/runatlantis/atlantis, pull request 2014).
//   - [HeaderForms]: http.Header.Set, which allocates a slice per field, and one slice
//     per field shared by all responses. The second is a data race between concurrent
//     responses. It shows how fast an unsafe way is.
//   - [Vitals]: a vital-signs service that logs every request and marshals every
//     answer, and the same service without either. Both store nothing.
//
// Routes, the fourth starting point, are in bench/routers.
package answers
