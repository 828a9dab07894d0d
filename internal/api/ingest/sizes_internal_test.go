package ingest

import (
	"testing"
	"unsafe"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestSizes checks that the memory reserved for a batch is at least what it takes.
func TestSizes(t *testing.T) {
	if got := int(unsafe.Sizeof(vitals.Reading{}) + unsafe.Sizeof(storage.Entry{}) + unsafe.Sizeof(int32(0)) +
		unsafe.Sizeof(&storage.Entry{}) + unsafe.Sizeof(int32(0))); got > acceptedBytes {
		t.Errorf("an accepted reading takes %d bytes, more than %d", got, acceptedBytes)
	}
	if got := int(unsafe.Sizeof(vitals.FieldError{})); got > refusedBytes {
		t.Errorf("a refused reading takes %d bytes, more than %d", got, refusedBytes)
	}
}
