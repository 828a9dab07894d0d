package profile

// What tests check against brute force.
var (
	PoissonPValue = poissonPValue
	NormalPValue  = normalPValue
	HeapSums      = heapSums
	Number        = number
)

// Names returns how a function's name is taken apart and shown.
func Names(name string) (pkg, base, short string) {
	fn := newFunction(name, "")
	return fn.pkg, fn.base, fn.shortName()
}
