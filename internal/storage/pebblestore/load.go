package pebblestore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/vitals"
)

// closedKey exists while the store is closed, if it was closed cleanly: then no device
// has a tail. Its value is closedVersion.
const (
	closedKey     = "\x00closed"
	closedVersion = 1
)

// load returns the table of the devices in db, and reports whether db was closed cleanly.
// It reads all records sequentially, and then each device's tail with a seek, but never
// all readings. After a clean Close there are no tails to read.
func load(db *pebble.DB) (_ *table, closed bool, err error) {
	closed, err = isClosed(db)
	if err != nil {
		return nil, false, fmt.Errorf("read devices: %w", err)
	}
	t := newTable()
	sc, err := newDeviceScanner(db, false)
	if err != nil {
		return nil, false, fmt.Errorf("read devices: %w", corrupt(err))
	}
	// Device number i has the i-th name. firsts has the first name of each chunk.
	var firsts []vitals.Name
	for ok := sc.first(nil); ok; ok = sc.next() {
		if i := t.add(&sc.name, sc.device); i%chunkDevices == 0 {
			firsts = append(firsts, sc.name)
		}
	}
	if err := sc.close(); err != nil {
		return nil, false, fmt.Errorf("read devices: %w", err)
	}
	if !closed {
		if err := t.loadTails(db, firsts); err != nil {
			return nil, false, fmt.Errorf("read newest readings: %w", err)
		}
	}
	for i := range uint32(t.len()) {
		t.active.moved(-1, t.at(i).newestUnixMs)
	}
	return t, closed, nil
}

// loadTails adds the tails to the devices of t. It uses all processors, since nothing
// else runs while a store is opened.
func (t *table) loadTails(db *pebble.DB, firsts []vitals.Name) error {
	var (
		workers sync.WaitGroup
		chunks  = make(chan int)
		errs    = make(chan error, len(firsts))
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range chunks {
				if err := loadChunk(db, &firsts[i], t.chunks[i][:min(chunkDevices, t.len()-i*chunkDevices)]); err != nil {
					errs <- err
				}
			}
		})
	}
	for i := range firsts {
		chunks <- i
	}
	close(chunks)
	workers.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// loadChunk fills devices with the devices from first on, and their tails.
func loadChunk(db *pebble.DB, first *vitals.Name, devices []device) error {
	sc, err := newDeviceScanner(db, true)
	if err != nil {
		return corrupt(err)
	}
	ok := sc.first(appendRecordKey(nil, first))
	for i := 0; ok && i < len(devices); i++ {
		devices[i] = sc.device
		if i+1 < len(devices) {
			ok = sc.next()
		}
	}
	return sc.close()
}

// isClosed reports whether the store was closed cleanly.
func isClosed(db *pebble.DB) (bool, error) {
	value, closer, err := db.Get([]byte(closedKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, corrupt(err)
	}
	// Another version may have another meaning: then read the tails.
	closed := len(value) == 1 && value[0] == closedVersion
	return closed, closer.Close()
}

// unclose deletes closedKey, durably: from now on there may be tails.
func (s *Store) unclose() error {
	b := s.db.NewBatch()
	if err := b.Delete([]byte(closedKey), nil); err != nil {
		return joinClose(err, b)
	}
	if err := s.commit(b); err != nil {
		return joinClose(err, b)
	}
	return b.Close()
}

// recordsPerBatch bounds the memory of Close.
const recordsPerBatch = 4096

// writeRecords writes the records of all devices with a tail, and then closedKey.
func (s *Store) writeRecords() error {
	t, b := s.settler.table, newBatch(s.db)
	for name, number := range t.byName {
		d := t.at(number)
		if d.tail == 0 {
			continue
		}
		d.recordedUnixMs, d.tail = d.newestUnixMs, 0
		op := b.SetDeferred(1+name.Len(), recordBytes(d))
		appendRecordKey(op.Key[:0], &name)
		appendRecord(op.Value[:0], d)
		if err := op.Finish(); err != nil {
			return joinClose(err, b)
		}
		if b.Count() < recordsPerBatch {
			continue
		}
		// Sync each batch: Pebble does not survive an error of the log that is found
		// after the sync of its batch.
		if err := s.commit(b); err != nil {
			return joinClose(err, b)
		}
		b.Reset()
	}
	if err := b.Set([]byte(closedKey), []byte{closedVersion}, nil); err != nil {
		return joinClose(err, b)
	}
	if err := s.commit(b); err != nil {
		return joinClose(err, b)
	}
	return b.Close()
}
