package pebblestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// Signs implements [storage.Store].
func (e *engine) Signs() *vitals.Signs { return e.signs }

// openSigns reads the definitions of signs, and stores those of the options, if these differ.
func (e *engine) openSigns(l *loaded) error {
	e.signs = vitals.NewSigns(e.options.later...)
	stored, err := e.storedSigns()
	if err != nil {
		return err
	}
	if err := e.signs.Define(e.options.Signs); err != nil || e.options.ReadOnly {
		return err
	}
	text, err := storage.EncodeSigns(e.signs)
	if err != nil || bytes.Equal(text, stored) {
		return err
	}
	b := e.db.NewBatch()
	if err := b.Set([]byte(layout.SignsKey), text, nil); err != nil {
		return errors.Join(err, b.Close())
	}
	for s, d := range e.signs.All() {
		if d.Own() {
			if err := l.journal.add(b, l.clockUnixMs, l.nextGroup,
				&layout.Event{Kind: layout.EventSign, Signs: 1 << s}); err != nil {
				return errors.Join(err, b.Close())
			}
		}
	}
	return errors.Join(e.commit(b), b.Close())
}

// storedSigns adds the signs that the store has to e.signs, and returns their stored form.
func (e *engine) storedSigns() (stored []byte, err error) {
	stored, err = state(e.db, layout.SignsKey)
	if err != nil {
		return nil, fmt.Errorf("read definitions of signs: %w", err)
	}
	if stored == nil {
		return nil, nil
	}
	if err = storage.RestoreSigns(e.signs, stored); e.options.problem != nil && errors.Is(err, storage.ErrCorrupt) {
		err = e.options.problem(err)
	}
	return stored, err
}
