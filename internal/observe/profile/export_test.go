package profile

import (
	"maps"
	"slices"
)

// Number is how a report formats a number.
var Number = number

// HeapSums returns the estimates of objects and of bytes, each with its variance.
func HeapSums(objects, bytes, rate int64) (o, b [2]float64) {
	x, y := heapSums(objects, bytes, rate)
	return [2]float64{x.value, x.variance}, [2]float64{y.value, y.variance}
}

// Names returns the package, base and short name of a function.
func Names(name string) (pkg, base, short string) {
	fn := newFunction(name, "")
	return fn.pkg, fn.base, fn.shortName()
}

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
	for _, r := range slices.Concat(runtimeRules, ownerRules, runtimePackages, waitPackages, wrappers, gateways, callPackages) {
		for _, pkg := range r.packages {
			rules = append(rules, Rule{pkg, r.functions, false})
		}
	}
	return rules
}
