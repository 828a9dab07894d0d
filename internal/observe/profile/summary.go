package profile

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// summaryFormat is the version of the JSON summary. It changes when a field
// changes its meaning or goes away.
const summaryFormat = 1

// summaryRows is how many functions and lines a summary holds.
const summaryRows = 100

// A summary is the JSON form of a report. Times are of CPU; costs are per request,
// or per second where "per" says so.
type summary struct {
	Format    int       `json:"format"`
	Target    string    `json:"target"`
	Start     time.Time `json:"start"`
	Version   string    `json:"version,omitempty"`
	GoVersion string    `json:"go_version,omitempty"`
	Per       string    `json:"per"`
	Problem   string    `json:"problem,omitempty"`

	Seconds        float64           `json:"seconds"` // between the counters
	CPUSeconds     float64           `json:"cpu_profile_seconds"`
	Requests       uint64            `json:"requests"`
	Routes         map[string]uint64 `json:"routes"`
	Readings       map[string]uint64 `json:"readings"`
	ProcessCPUUs   float64           `json:"process_cpu_us"` // by the process's own clock
	CountedBytes   float64           `json:"counted_bytes"`  // allocated, by the runtime's own count
	CountedObjects float64           `json:"counted_objects"`

	Total     cost   `json:"total"`
	Parts     []cost `json:"parts"`
	Syscalls  []cost `json:"syscalls"`
	Functions []cost `json:"functions"`
	Lines     []cost `json:"lines"`

	Before *Counters `json:"before,omitempty"`
	After  *Counters `json:"after,omitempty"`
	Window float64   `json:"window_s"` // that was asked for
}

// A cost is a row, divided.
type cost struct {
	Name          string  `json:"name"`
	Part          Part    `json:"part,omitempty"`
	CPUUs         float64 `json:"cpu_us"`
	CPUUsStdErr   float64 `json:"cpu_us_stderr"`
	CPUSamples    int64   `json:"cpu_samples"`
	CumUs         float64 `json:"cpu_us_with_calls,omitempty"`
	Bytes         float64 `json:"bytes"`
	BytesStdErr   float64 `json:"bytes_stderr"`
	Objects       float64 `json:"objects"`
	ObjectsStdErr float64 `json:"objects_stderr"`
}

// cost divides a row by the requests of the windows of CPU time and allocations.
func (row *Row) cost(cpu, allocs float64) cost {
	return cost{
		Name: row.Name, Part: row.Part,
		CPUUs: float64(row.CPU.Nanos) / 1e3 / cpu, CPUUsStdErr: row.CPU.stdErr() / 1e3 / cpu,
		CPUSamples: row.CPU.Samples, CumUs: float64(row.Cum.Nanos) / 1e3 / cpu,
		Bytes: row.Bytes.Value / allocs, BytesStdErr: row.Bytes.stdErr() / allocs,
		Objects: row.Objects.Value / allocs, ObjectsStdErr: row.Objects.stdErr() / allocs,
	}
}

// summary returns the JSON form of r.
func (r *Report) summary() *summary {
	cpu, allocs := r.Divisor(r.CPUWindow), r.Divisor(r.AllocsWindow)
	costs := func(rows []Row) []cost {
		list := []cost{}
		for _, row := range rows[:min(summaryRows, len(rows))] {
			list = append(list, row.cost(cpu, allocs))
		}
		return list
	}
	s := &summary{
		Format: summaryFormat, Target: r.Target, Start: r.Start, Version: r.Version, GoVersion: r.GoVersion,
		Per: r.unit(), Seconds: r.Load.Duration.Seconds(), CPUSeconds: r.CPUWindow.Seconds(),
		Requests: r.Load.Requests, Routes: r.Load.Routes, Readings: r.Load.Readings,
		Total: r.Total.cost(cpu, allocs), Parts: costs(r.Parts), Syscalls: costs(r.Syscalls), Functions: costs(r.Functions), Lines: costs(r.Lines),
	}
	if r.Problem != nil {
		s.Problem = r.Problem.Error()
	}
	if r.Load.Duration > 0 {
		n := r.Divisor(r.Load.Duration)
		s.ProcessCPUUs = r.Load.CPU.Seconds() * 1e6 / n
		s.CountedBytes, s.CountedObjects = r.Load.Bytes/n, r.Load.Objects/n
	}
	return s
}

// WriteJSON writes a report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r.summary()) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
