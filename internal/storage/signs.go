package storage

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/vitals"
)

// A storedSign is the definition of a sign of a user's own as stores keep it, with its number.
type storedSign struct {
	Number   vitals.Sign  `json:"number"`
	Field    string       `json:"field"`
	Label    string       `json:"label"`
	Unit     string       `json:"unit"`
	Decimals int          `json:"decimals"`
	LOINC    []string     `json:"loinc,omitempty"`
	Accepted vitals.Range `json:"accepted"` // in units of the last decimal
	Usual    vitals.Range `json:"usual"`

	Critical *vitals.Range `json:"critical,omitempty"`
}

// EncodeSigns returns the definitions of a user's own signs in a table, as stores keep them, or nil if there
// are none.
func EncodeSigns(signs *vitals.Signs) ([]byte, error) {
	var own []storedSign
	for s, d := range signs.All() {
		if d.Own() {
			own = append(own, storedSign{s, d.Field, d.Label, d.Unit, d.Decimals, d.LOINC, d.Accepted, d.Usual, d.Critical})
		}
	}
	if own == nil {
		return nil, nil
	}
	return json.Marshal(own, json.Deterministic(true))
}

// RestoreSigns adds the signs that EncodeSigns encoded to a table. Those that it adds are retired until
// they are defined again. Its errors wrap [ErrCorrupt], or [vitals.ErrTaken].
func RestoreSigns(signs *vitals.Signs, text []byte) error {
	var own []storedSign
	if err := json.Unmarshal(text, &own, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: definitions of signs", ErrCorrupt)
	}
	for _, s := range own {
		if d := signs.Of(s.Number); d != nil && d.Own() && d.Field == s.Field {
			continue
		}
		d := vitals.Definition{
			Field: s.Field, Label: s.Label, Unit: s.Unit, Decimals: s.Decimals, LOINC: s.LOINC,
			Accepted: s.Accepted, Usual: s.Usual, Critical: s.Critical, Retired: true,
		}
		if err := signs.Restore(s.Number, d); errors.Is(err, vitals.ErrTaken) {
			return fmt.Errorf("%w; export its readings with the version before, and import them into a new store", err)
		} else if err != nil {
			return fmt.Errorf("%w: definitions of signs: %w", ErrCorrupt, err)
		}
	}
	return nil
}
