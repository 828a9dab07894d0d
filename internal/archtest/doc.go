// Package archtest holds the architecture: its tests parse every Go file of the
// module and compare it with the tables of layers and libraries, and with what
// ARCHITECTURE.md says is absent.
//
// # Promise
//
// A file that breaks a rule fails the test with its name and line, the rule, and
// what to do about it. Each rule has an example that breaks it, so that a rule
// that stopped working is noticed too.
//
// The rules look at every file, whatever its build constraints. They need no
// built packages and no network: what is imported is judged by its path, and
// names are resolved inside the package only.
//
// # How to change a rule
//
// A new package, library or exception is a line in tables_test.go, with its
// reason. The tables say what ARCHITECTURE.md says; change both.
//
// # Not here
//
// No style that a linter checks; see staticcheck.conf. The modules bench and
// tools are not looked at: they may import what they like, and nothing here may
// import them.
package archtest
