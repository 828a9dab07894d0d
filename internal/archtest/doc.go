// Package archtest checks the architecture: its tests parse every Go file in the module
// and compare it with the tables of roles and libraries, and with what ARCHITECTURE.md
// says is absent.
//
// # Promise
//
// If a file breaks a rule, the test fails with the file and line, the rule, and what to
// do about it.
//
// The rules cover every file, regardless of build constraints. They need no built
// packages and no network: imports are checked by path, and names are resolved only
// within a package.
//
// # How to change a rule
//
// A new package, library or exception needs a line in tables_test.go, with its reason.
// The tables must agree with ARCHITECTURE.md; change both.
//
// # Not here
//
// What golangci-lint checks: style, func init, flags, the environment and the names of packages;
// see .golangci.yml. The modules bench and tools are
// not checked: they may import anything, and nothing here may import them.
package archtest
