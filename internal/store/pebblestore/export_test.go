package pebblestore

// ReencodeReading decodes the value of a reading and encodes it again.
func ReencodeReading(b []byte) ([]byte, error) {
	var r reading
	if err := decodeReading(b, &r); err != nil {
		return nil, err
	}
	return appendReading(make([]byte, 0, readingBytes(&r)), &r), nil
}

// ReencodeRecord decodes the value of a device record and encodes it again.
func ReencodeRecord(b []byte) ([]byte, error) {
	var d device
	if err := decodeRecord(b, &d); err != nil {
		return nil, err
	}
	return appendRecord(make([]byte, 0, recordBytes(&d)), &d), nil
}
