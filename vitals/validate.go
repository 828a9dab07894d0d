package vitals

// A Validator checks readings against limits. It is immutable and safe for concurrent
// use.
type Validator struct {
	limits Limits

	// Rules whose texts contain a limit.
	outside [NumSigns]*rule // range of each sign
	ahead   *rule           // of times
	old     *rule           // of times
	oldest  *rule           // of times
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
	for s, r := range limits.Accepted {
		text := []byte("outside the accepted range ")
		text = AppendHundredths(text, r.Min)
		text = append(text, " to "...)
		text = AppendHundredths(text, r.Max)
		text = append(text, ' ')
		text = append(text, signs[s].ucum...)
		v.outside[s] = &rule{reason: string(text), of: ErrRange}
	}
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
	for s := range Sign(NumSigns) {
		if value, ok := r.Values.Get(s); ok {
			if err := v.checkValue(s, value); err != nil {
				return signs[s].field, err
			}
		}
	}
	return checkTogether(&r.Values)
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
func (v *Validator) checkValue(s Sign, value Hundredths) error {
	switch {
	case value == 0:
		return ErrNoSignal
	case !v.limits.Accepted[s].Contains(value):
		return v.outside[s]
	default:
		return nil
	}
}

// checkTogether returns the broken rule about several values, or nil.
func checkTogether(values *Values) (field string, err error) {
	if values.IsZero() {
		return "", ErrEmpty
	}
	systolic, hasSystolic := values.Get(Systolic)
	diastolic, hasDiastolic := values.Get(Diastolic)
	switch {
	case hasSystolic && !hasDiastolic:
		return signs[Diastolic].field, ErrPair
	case hasDiastolic && !hasSystolic:
		return signs[Systolic].field, ErrPair
	case hasSystolic && systolic <= diastolic:
		return signs[Systolic].field, ErrPressureOrder
	default:
		return "", nil
	}
}
