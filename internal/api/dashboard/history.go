package dashboard

import (
	"bytes"
	"context"
	"math"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// The history has a point for each step of the last hour.
const (
	historyStep   = 5 * time.Second
	historyPoints = int(time.Hour / historyStep)
	historyDigits = 6 // significant ones of a value, as JSON
)

// HistoryColumns are the values of a point, by their names in the answer of [Handler.System]. It is
// never modified.
var HistoryColumns = [...]string{"stored_per_second", "commits_per_second", "commit_p50_seconds", "commit_p99_seconds",
	"connections"}

// A point has the values of [HistoryColumns]. Those that are not known are NaN.
type point [len(HistoryColumns)]float64

// A history is what the server has counted in the last hour. It takes 28 KiB and a snapshot, and is
// lost when the server stops.
type history struct {
	began time.Time // of the first step

	// before is the newest snapshot, taken at the time at. It is nil at first: counters begin at 0.
	before metrics.Snapshot
	at     time.Time

	steps  int                  // steps since began
	points [historyPoints]point // of the newest steps: step i is at i % historyPoints
}

// Run records the history until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	ticker := time.NewTicker(historyStep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		counted, err := h.opt.Metrics.Snapshot()
		if err != nil {
			h.opt.Report(err)
			continue
		}
		h.mu.Lock()
		h.history.add(time.Now(), counted)
		h.mu.Unlock()
	}
}

// add adds the step that ends now. The values of steps that were missed are not known; the rates of
// this one are means since the newest snapshot.
func (h *history) add(now time.Time, counted metrics.Snapshot) {
	n := int(now.Sub(h.began) / historyStep)
	if n <= h.steps {
		return // the previous call was late
	}
	for ; h.steps < n-1; h.steps++ {
		h.points[h.steps%historyPoints] = unknown()
	}
	seconds := now.Sub(h.at).Seconds()
	rate := func(name, label, value string) float64 {
		return (counted.Find(name, label, value).Number() - h.before.Find(name, label, value).Number()) / seconds
	}
	const commits = "pulsegate_commit_duration_seconds"
	quantile := func(q float64) float64 {
		return counted.Find(commits, "", "").Quantile(h.before.Find(commits, "", ""), q)
	}
	h.points[h.steps%historyPoints] = point{
		rate("pulsegate_readings_total", "outcome", "stored"), rate(commits, "", ""), quantile(0.5), quantile(0.99),
		counted.Find("pulsegate_connections", "", "").Number(),
	}
	h.steps, h.at, h.before = n, now, counted
}

func unknown() (p point) {
	for i := range p {
		p[i] = math.NaN()
	}
	return p
}

// append appends the history as JSON: the end of the newest step, and the values of each column,
// oldest first.
func (h *history) append(text []byte) []byte {
	text = append(text, `{"to":"`...)
	text = h.began.Add(time.Duration(h.steps)*historyStep).UTC().AppendFormat(text, instant)
	text = append(text, `","step_seconds":`...)
	text = strconv.AppendFloat(text, historyStep.Seconds(), 'f', -1, 64)
	for column, name := range HistoryColumns {
		text = append(text, `,"`+name+`":[`...)
		for i := max(0, h.steps-historyPoints); i < h.steps; i++ {
			if v := h.points[i%historyPoints][column]; math.IsNaN(v) {
				text = append(text, "null,"...)
			} else {
				text = append(strconv.AppendFloat(text, v, 'g', historyDigits, 64), ',')
			}
		}
		text = append(bytes.TrimSuffix(text, []byte(",")), ']')
	}
	return append(text, '}')
}
