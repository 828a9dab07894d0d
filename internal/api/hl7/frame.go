package hl7

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
)

// The bytes that delimit a message in MLLP (HL7 Transport Specification: MLLP, Release 1). They are control
// characters that no message may contain.
const (
	startBlock = 0x0b
	endBlock   = 0x1c
	endFrame   = '\r' // follows endBlock
)

// Errors of framing. Only after errTooLarge can a connection be read any further.
var (
	errOutside  = errors.New("bytes outside of a frame")
	errNested   = errors.New("a start block within a message")
	errEnd      = errors.New("an end block that no carriage return follows")
	errTooLarge = errors.New("a message beyond the bound")
	errMemory   = errors.New("no memory for a message")
)

// maxBetween bounds the line breaks between two frames, which some senders write.
const maxBetween = 16

// frames reads the messages of a connection.
type frames struct {
	in  *bufio.Reader
	max int // bytes of a message

	within bool // a message has begun and not ended

	begun func()           // is called when a message begins
	grow  func(n int) bool // is called before a message takes up n bytes, and reports whether it may
}

// next reads a message into dst, and returns it. The error is io.EOF if the connection ends between two messages. After
// errTooLarge, with the beginning of the message, the next one may be read.
func (f *frames) next(dst []byte) ([]byte, error) {
	f.within = false
	for skipped := 0; ; skipped++ {
		b, err := f.in.ReadByte()
		if err != nil {
			return dst, err
		}
		if b == startBlock {
			break
		}
		if b != '\r' && b != '\n' || skipped == maxBetween {
			return dst, errOutside
		}
	}
	f.within = true
	f.begun()
	tooLarge := false
	for {
		part, err := f.in.ReadSlice(endBlock)
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		switch need := len(dst) + len(part); {
		case bytes.IndexByte(part, startBlock) >= 0:
			return dst, errNested
		case tooLarge, need > f.max:
			tooLarge, part = true, nil
		case need > cap(dst):
			size := min(max(2*cap(dst), need, minMessage), f.max)
			if !f.grow(size) {
				return dst, errMemory
			}
			dst = append(make([]byte, 0, size), dst...)
		}
		dst = append(dst, part...)
		switch {
		case ended && tooLarge:
			return dst, cmp.Or(f.end(), errTooLarge)
		case ended:
			return dst, f.end()
		case err == io.EOF:
			return dst, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return dst, err
		}
	}
}

// minMessage is the memory that a message takes up at least.
const minMessage = 4 << 10

// end reads what follows the end block.
func (f *frames) end() error {
	switch b, err := f.in.ReadByte(); {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case b != endFrame:
		return errEnd
	}
	return nil
}
