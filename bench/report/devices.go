package report

import (
	"fmt"
	"strings"
)

// A Devices has the figures of servers that store readings of many devices.
type Devices struct {
	Setting    Setting
	FileSystem string
	Few, Many  DevicesRow // with equally many readings
}

// A DevicesRow is a number of devices, with the same number of readings of each.
type DevicesRow struct {
	Devices, Readings int
	Runs              []DevicesRun // by round
}

// A DevicesRun is the memory and the disk space of one server.
type DevicesRun struct {
	ArrivingBytes uint64 // largest resident memory until the server was idle after the load
	AfterBytes    uint64 // resident memory after the next start
	DiskBytes     uint64 // of the data directory then
}

// figures are the columns of the table.
func (DevicesRun) figures() []func(*DevicesRun) uint64 {
	return []func(*DevicesRun) uint64{
		func(r *DevicesRun) uint64 { return r.ArrivingBytes },
		func(r *DevicesRun) uint64 { return r.AfterBytes },
		func(r *DevicesRun) uint64 { return r.DiskBytes },
	}
}

// Markdown formats the figures as the block of the page.
func (d *Devices) Markdown() string {
	var b strings.Builder
	b.WriteString(d.Setting.markdown())
	fmt.Fprintf(&b, "- Rounds: %d, with a new server for every row\n- Data: on %s\n\n", len(d.Many.Runs), d.FileSystem)
	b.WriteString("Readings with two signs arrive in batches, from each device in turn. Memory is what is resident of the server's process, with the garbage that its runtime keeps: " +
		"the most while they arrive, and what it is after the next start, with all readings in segments. Disk is the data directory then. " +
		"Figures are medians, with the range over the rounds in brackets.\n\n" +
		"| devices | readings of each | memory while they arrive, MiB | memory after, MiB | disk, MiB | disk, bytes a reading |\n|--:|--:|--:|--:|--:|--:|\n")
	figures := DevicesRun{}.figures()
	for _, row := range []*DevicesRow{&d.Few, &d.Many} {
		fmt.Fprintf(&b, "| %d | %d |", row.Devices, row.Readings)
		for _, of := range figures {
			fmt.Fprintf(&b, " %s |", row.spread(func(i int) float64 { return MiB(of(&row.Runs[i])) }).text("%.1f"))
		}
		fmt.Fprintf(&b, " %s |\n", row.spread(func(i int) float64 { return float64(row.Runs[i].DiskBytes) / float64(row.Devices*row.Readings) }).text("%.1f"))
	}
	b.WriteString("| **one more device**, bytes | |")
	for _, of := range figures {
		fmt.Fprintf(&b, " %s |", d.Many.spread(func(i int) float64 {
			return (float64(of(&d.Many.Runs[i])) - float64(of(&d.Few.Runs[i]))) / float64(d.Many.Devices-d.Few.Devices)
		}).text("%.0f"))
	}
	b.WriteString(" |\n")
	return b.String()
}

// spread returns the Spread of a figure of each run.
func (r *DevicesRow) spread(of func(run int) float64) Spread {
	values := make([]float64, len(r.Runs))
	for i := range values {
		values[i] = of(i)
	}
	return SpreadOf(values)
}
