package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pulsegate/pulsegate/bench/report"
)

// devicesCommand measures the cost of a device: the memory and the disk space of a server
// with many devices, and of one with a tenth of them, with equally many readings.
type devicesCommand struct {
	storing
	Devices  int `default:"200000" help:"Devices."`
	Readings int `default:"11" help:"Readings of each device."`
}

func (c *devicesCommand) Validate() error {
	if c.Devices < 10*batchReadings || c.Devices > 1_000_000 || c.Devices%(10*batchReadings) != 0 {
		return fmt.Errorf("--devices must be a multiple of %d and at most 1000000", 10*batchReadings)
	}
	if c.Readings < 1 {
		return errors.New("--readings must be positive")
	}
	return c.storing.Validate()
}

func (c *devicesCommand) Run(ctx context.Context, out io.Writer) error {
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *devicesCommand) measure(ctx context.Context) error {
	servers := &report.Table{Head: "devices", Columns: []report.Column{
		{Title: "memory while they arrive, MiB", Figure: "arriving", Format: "%.1f"},
		{Title: "memory after, MiB", Figure: "after", Format: "%.1f"},
		{Title: "disk, MiB", Figure: "disk", Format: "%.1f"},
		{Title: "disk, bytes a reading", Figure: "bytes", Format: "%.1f"},
	}}
	device := &report.Table{Head: "what a device adds", Columns: []report.Column{
		{Title: "memory while they arrive, bytes", Figure: "arriving", Format: "%.0f"},
		{Title: "memory after, bytes", Figure: "after", Format: "%.0f"},
		{Title: "disk, bytes", Figure: "disk", Format: "%.0f"},
	}}
	few := c.Devices / 10
	for round := range c.Rounds {
		var before report.Figures
		for _, devices := range []int{few, c.Devices} {
			readings := c.Readings * c.Devices / devices
			f, err := c.loadDevices(ctx, devices, readings)
			if err != nil {
				return fmt.Errorf("measure %d devices: %w", devices, err)
			}
			servers.Add(c.out, round, fmt.Sprintf("%d, with %d readings each", devices, readings), "", f)
			if devices == c.Devices {
				more := report.Figures{}
				for _, name := range []string{"arriving", "after", "disk"} {
					more[name] = (f[name] - before[name]) * (1 << 20) / float64(c.Devices-few)
				}
				device.Add(c.out, round, "one more device", "", more)
			}
			before = f
		}
	}
	r := c.reportOf(fmt.Sprintf("make bench-devices ROUNDS=%d DEVICES=%d", c.Rounds, c.Devices),
		"Readings with two signs arrive in batches, from each device in turn. Memory is the resident memory of the server's process, including garbage: "+
			"the most while they arrive, and what it is after the next start, with all readings in segments. Disk is the data directory then. "+rounded,
		fmt.Sprintf("Rounds: %d, with a new server for every row", c.Rounds))
	r.Tables = []*report.Table{servers, device}
	return c.write("devices", r)
}

// loadDevices measures a new server with some devices, in MiB.
func (c *devicesCommand) loadDevices(ctx context.Context, devices, readings int) (f report.Figures, err error) {
	err = c.keep(ctx, ownKeeper(c.Programs), func(k *keeper) error {
		if _, err := flowOf(devices*readings, devices, 2, senders, k.outlet).run(ctx, devices*readings/batchReadings); err != nil {
			return err
		}
		if _, err := c.settle(ctx, k); err != nil {
			return err
		}
		arriving, err := memory(k.process.pid())
		if err == nil {
			err = eraseFirst(ctx, k)
		}
		if err := errors.Join(err, k.stop(), k.restart(ctx)); err != nil {
			return err
		}
		disk, err := c.settle(ctx, k)
		if err != nil {
			return err
		}
		after, err := memory(k.process.pid())
		f = report.Figures{"arriving": report.MiB(arriving.VmHWM), "after": report.MiB(after.VmRSS), "disk": report.MiB(disk), "bytes": float64(disk) / float64(devices*readings)}
		return err
	})
	return f, err
}

// eraseFirst erases the first device. Then all readings of the others are in segments, and none
// in windows, of which each load would leave another number.
func eraseFirst(ctx context.Context, k *keeper) error {
	body := fmt.Sprintf(`{"device":"%s"}`, appendDevice(nil, 0))
	_, err := exchange(ctx, http.MethodPost, "http://"+k.process.admin+"/admin/erase", strings.NewReader(body), nil)
	return err
}
