package profile

import (
	"maps"
	"slices"
)

// A Rule names functions of a package, by prefixes of their names or, if Exact, by
// their full names.
type Rule struct {
	Package   string
	Functions []string
	Exact     bool
}

// Rules returns all functions named in the tables of rules.
func Rules() []Rule {
	rules := []Rule{{"runtime", slices.Sorted(maps.Keys(runtimeCalls)), true}}
	for _, r := range slices.Concat(runtimeRules, ownerRules, runtimePackages, waitPackages, wrappers, gateways,
		callPackages) {
		for _, pkg := range r.packages {
			rules = append(rules, Rule{pkg, r.functions, false})
		}
	}
	return rules
}
