package vitals

// A Validator checks readings against limits. It is immutable and safe for concurrent
// use.
type Validator struct {
	limits Limits

	// Rules whose texts contain a limit.
	outside  [MaxSigns]*rule // range of each sign
	fraction *rule           // range of an SpO2 that looks like a fraction
	ahead    *rule           // of times
	old      *rule           // of times
	oldest   *rule           // of times

	decimals [MaxSigns]int8

	names fieldTable // of the fields of a reading
}

// NewValidator returns a validator for limits, or the error of [Limits.Validate].
func NewValidator(limits Limits) (*Validator, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	v := &Validator{
		limits: limits,
		ahead:  &rule{reason: "more than " + limits.MaxAhead.String() + " ahead of the server's clock", of: ErrFuture},
		old:    &rule{reason: "older than this server keeps, which is " + days(limits.MaxAge), of: ErrOld},
	}
	oldest := AppendTime([]byte("before "), limits.OldestUnixMs)
	v.oldest = &rule{reason: string(append(oldest, ", the oldest time that this server accepts"...)), of: ErrPast}
	for s, d := range limits.Signs.All() {
		r := limits.Accepted[s]
		text := d.Append([]byte("outside the accepted range "), r.Min)
		text = d.Append(append(text, " to "...), r.Max)
		text = append(append(text, ' '), d.Unit...)
		v.outside[s] = &rule{reason: string(text), of: ErrRange}
		v.decimals[s] = int8(d.Decimals)
	}
	v.fraction = &rule{reason: v.outside[SpO2].reason + isFraction, of: ErrRange}
	v.names = newFieldTable(limits.Signs)
	return v, nil
}

// Validate returns nil if r keeps every rule at nowUnixMs, or a [*FieldError] with
// Index 0 for the first rule that r breaks. It allocates only for the error.
//
// It cannot detect a missing time; the decoder does.
func (v *Validator) Validate(r *Reading, nowUnixMs int64) error {
	if field, err := v.check(r, v.limits.times(nowUnixMs)); err != nil {
		return &FieldError{Field: field, Err: err}
	}
	return nil
}

func (v *Validator) check(r *Reading, times timeSpan) (field string, err error) {
	if r.Device.IsZero() {
		return fieldDevice, ErrMissing
	}
	if err := v.checkTime(r.TimeUnixMs, times); err != nil {
		return fieldTime, err
	}
	for s, value := range r.Values.All() {
		if v.outside[s] == nil || v.limits.Signs.Of(s).Retired {
			return v.limits.Signs.Field(s), ErrUnknownField
		}
		if err := v.checkValue(s, value); err != nil {
			return v.limits.Signs.Field(s), err
		}
	}
	return checkTogether(&r.Values)
}

// retired reports whether a field is that of a retired sign. It is rejected also where unknown fields are
// ignored: stored values of that sign exist.
func (v *Validator) retired(field []byte) bool {
	for _, d := range v.limits.Signs.All() {
		if d.Retired && d.Field == string(field) {
			return true
		}
	}
	return false
}

// checkTime returns the rule that a time breaks, or nil.
func (v *Validator) checkTime(unixMs int64, times timeSpan) error {
	switch {
	case unixMs < 0:
		return ErrPast
	case unixMs < v.limits.OldestUnixMs:
		return v.oldest
	case unixMs < times.earliestUnixMs:
		return v.old
	case unixMs > times.latestUnixMs:
		return v.ahead
	default:
		return nil
	}
}

// checkValue returns the rule that a value of sign s breaks, or nil.
func (v *Validator) checkValue(s Sign, value Value) error {
	switch {
	case v.limits.Accepted[s].Contains(value):
		return nil
	case value == 0:
		return ErrNoSignal
	case s == SpO2 && value > 0 && value < leastPercentage*Value(powers[builtIn[SpO2].Decimals]):
		return v.fraction
	default:
		return v.outside[s]
	}
}

// checkTogether returns the broken rule about several values, or nil.
func checkTogether(values *Values) (field string, err error) {
	if values.IsZero() {
		return "", ErrEmpty
	}
	if values.present&paired == 0 {
		return "", nil
	}
	for i := range Pairs {
		p := &Pairs[i]
		high, hasHigh := values.Get(p.High)
		low, hasLow := values.Get(p.Low)
		switch {
		case hasHigh && !hasLow:
			return builtIn[p.Low].Field, ErrPair
		case hasLow && !hasHigh:
			return builtIn[p.High].Field, ErrPair
		case hasHigh && high <= low:
			return builtIn[p.High].Field, ErrPressureOrder
		}
	}
	return "", nil
}
