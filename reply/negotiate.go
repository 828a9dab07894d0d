package reply

// maxVariants bounds the codings of one answer.
const maxVariants = 8

// unlisted stands for the weight of a coding that a request does not name.
const unlisted = -1

// weights are what a request says of an answer's variants, in thousandths, by
// their index.
type weights struct {
	of  [maxVariants]int
	any int // of "*"
}

// selectVariant returns the variant that suits the Accept-Encoding fields best:
// the highest weight, and of equals the smallest body. Without the field, and
// where nothing is acceptable, it is the body as it is (RFC 9110, section
// 12.5.3, leaves the latter to the server).
//
// The body as it is counts as acceptable unless "identity;q=0" or "*;q=0" says
// otherwise, but a coding that the request names comes before it, unless
// identity itself is named with a higher weight.
func selectVariant(variants []variant, acceptEncoding []string) *variant {
	if len(acceptEncoding) == 0 {
		return &variants[0]
	}
	w := noWeights()
	for _, field := range acceptEncoding {
		weigh(&w, variants, field)
	}
	return w.best(variants)
}

// selectVariantHTTP1 is selectVariant for a field that is not a string.
func selectVariantHTTP1(variants []variant, acceptEncoding []byte) *variant {
	if len(acceptEncoding) == 0 {
		return &variants[0]
	}
	w := noWeights()
	weigh(&w, variants, acceptEncoding)
	return w.best(variants)
}

func noWeights() weights {
	w := weights{any: unlisted}
	for i := range w.of {
		w.of[i] = unlisted
	}
	return w
}

// best returns the variant to send.
func (w *weights) best(variants []variant) *variant {
	chosen, high := 0, 0
	// They come in the order of their sizes, so that a later one must be better,
	// not equal, to be taken. The body as it is is the largest.
	for i := 1; i < len(variants); i++ {
		if q := w.weight(i); q > high {
			chosen, high = i, q
		}
	}
	if w.weight(0) > high {
		chosen = 0
	}
	return &variants[chosen]
}

func (w *weights) weight(i int) int {
	if w.of[i] == unlisted {
		return w.any
	}
	return w.of[i]
}

// weigh notes the weights of one field's elements:
//
//	#( coding [ OWS ";" OWS "q=" qvalue ] )
//
// Where a coding is named twice, the lower weight counts. An element that is
// malformed is passed over.
func weigh[T string | []byte](w *weights, variants []variant, field T) {
	for i := 0; i < len(field); {
		end := i
		for end < len(field) && field[end] != ',' {
			end++
		}
		coding, q, ok := parseElement(field[i:end])
		i = end + 1
		if !ok {
			continue
		}
		if len(coding) == 1 && coding[0] == '*' {
			w.any = lower(w.any, q)
			continue
		}
		for j := range variants {
			if isCoding(coding, variants[j].coding) {
				w.of[j] = lower(w.of[j], q)
			}
		}
	}
}

func lower(was, q int) int {
	if was == unlisted || q < was {
		return q
	}
	return was
}

// isCoding reports whether a request's name means the coding of a variant.
func isCoding[T string | []byte](name T, coding string) bool {
	switch coding {
	case "":
		return equalFold(name, "identity")
	case "gzip":
		// RFC 9110, section 8.4.1.3.
		return equalFold(name, "gzip") || equalFold(name, "x-gzip")
	}
	return equalFold(name, coding)
}

// parseElement takes "gzip;q=0.5" apart. q is in thousandths.
func parseElement[T string | []byte](s T) (coding T, q int, ok bool) {
	s = trimSpace(s)
	end := 0
	for end < len(s) && s[end] != ';' {
		end++
	}
	coding = trimSpace(s[:end])
	if len(coding) == 0 {
		return coding, 0, false
	}
	if end == len(s) {
		return coding, 1000, true
	}
	param := trimSpace(s[end+1:])
	if len(param) < 3 || param[0]|0x20 != 'q' || param[1] != '=' {
		return coding, 0, false
	}
	q, ok = parseWeight(param[2:])
	return coding, q, ok
}

// parseWeight reads a qvalue (RFC 9110, section 12.4.2) in thousandths. Further
// digits are cut, since some clients send them.
func parseWeight[T string | []byte](s T) (thousandths int, ok bool) {
	if len(s) == 0 || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0, false
	}
	q, unit := int(s[0]-'0')*1000, 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		q += int(s[i]-'0') * unit
		unit /= 10
	}
	if q > 1000 {
		return 0, false
	}
	return q, true
}

// trimSpace cuts optional white space (RFC 9110, section 5.6.3).
func trimSpace[T string | []byte](s T) T {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// equalFold compares in ASCII; lower is in lower case.
func equalFold[T string | []byte](s T, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(lower) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
