//go:build race

package pebblestore_test

const raceDetector = true
