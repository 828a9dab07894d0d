package reply

import (
	"net/http"
	"reflect"
)

// MaxVariants and SmallInts show the bounds to the tests.
const (
	MaxVariants = maxVariants
	SmallInts   = smallInts
)

// Recycles reports whether a Pool would use slices again that were put into w's
// header.
func Recycles(w http.ResponseWriter) bool {
	return new(fieldSet).unread(w)
}

// Trusting returns a Pool that takes writers of w's type for the server's own.
// It holds one set, so it is for one goroutine.
func Trusting(w http.ResponseWriter) *Pool {
	p := new(Pool)
	p.sets.New = func() any { return &fieldSet{known: reflect.TypeOf(w)} }
	return p
}

// Select returns the index and the coding of the variant of a that suits the
// Accept-Encoding fields, and whether the same is chosen when the fields come as
// bytes.
func Select(a *Answer, fields []string, joined []byte) (coding string, same bool) {
	v := selectVariant(a.variants, fields)
	return v.coding, v == selectVariantHTTP1(a.variants, joined)
}
