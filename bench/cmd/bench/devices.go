package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// devicesCommand measures the cost of a device: the memory and the disk space of a server
// with many devices, and of one with a tenth of them, with equally many readings.
type devicesCommand struct {
	loads
	Devices  int           `default:"200000" help:"Devices."`
	Readings int           `default:"11" help:"Readings of each device."`
	Settled  time.Duration `default:"8s" help:"How long a server must be idle until it counts as settled."`
}

func (c *devicesCommand) Validate() error {
	if c.Devices < 10*batchReadings || c.Devices > 1_000_000 || c.Devices%(10*batchReadings) != 0 {
		return fmt.Errorf("--devices must be a multiple of %d and at most 1000000", 10*batchReadings)
	}
	if c.Readings < 1 || c.Settled <= 0 {
		return errors.New("--readings and --settled must be positive")
	}
	return c.loads.Validate()
}

func (c *devicesCommand) Run(ctx context.Context, out io.Writer) (err error) {
	result := &report.Devices{
		Setting: report.Here(fmt.Sprintf("make bench-devices ROUNDS=%d DEVICES=%d", c.Rounds, c.Devices)),
		Few:     report.DevicesRow{Devices: c.Devices / 10, Readings: 10 * c.Readings},
		Many:    report.DevicesRow{Devices: c.Devices, Readings: c.Readings},
	}
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	result.FileSystem = fileSystem(work)
	b := &storeRun{storeCommand: &storeCommand{loads: c.loads, Settled: c.Settled}, work: work, out: out}
	for round := range c.Rounds {
		for _, row := range []*report.DevicesRow{&result.Few, &result.Many} {
			run, err := b.loadDevices(ctx, row.Devices, row.Readings)
			if err != nil {
				return fmt.Errorf("measure %d devices: %w", row.Devices, err)
			}
			fmt.Fprintf(out, "round %d  %d devices with %d readings each: %+v\n", round+1, row.Devices, row.Readings, run)
			row.Runs = append(row.Runs, run)
		}
	}
	return c.write(out, "bench-devices", result.Markdown())
}

// loadDevices measures a new server with some devices.
func (b *storeRun) loadDevices(ctx context.Context, devices, readings int) (run report.DevicesRun, err error) {
	err = b.inDir(func(dir string) error {
		k, err := b.startKeeper(ctx, dir)
		if err != nil {
			return err
		}
		f := flowOf(devices*readings, devices, 2, senders, k.open)
		_, err = f.run(ctx, devices*readings/batchReadings)
		if err == nil {
			_, _, err = b.settle(ctx, k)
		}
		if err == nil {
			run.ArrivingBytes, err = memory(k.process.pid(), "VmHWM")
		}
		if err == nil {
			err = eraseFirst(ctx, k)
		}
		if err = errors.Join(err, k.stop()); err != nil {
			return err
		}
		if k, err = b.startKeeper(ctx, dir); err != nil {
			return err
		}
		if run.DiskBytes, _, err = b.settle(ctx, k); err == nil {
			run.AfterBytes, err = memory(k.process.pid(), "VmRSS")
		}
		return errors.Join(err, k.stop())
	})
	return run, err
}

// eraseFirst erases the first device. Then all readings of the others are in segments, and none
// in windows, of which each load would leave another number.
func eraseFirst(ctx context.Context, k *keeper) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"device":"%s"}`, appendDevice(nil, 0))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+k.process.admin+"/admin/erase", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("erase a device: status %d", resp.StatusCode)
	}
	return nil
}
