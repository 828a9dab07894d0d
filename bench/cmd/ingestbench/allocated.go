package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/bench/report"
)

// allocated returns what a process has allocated since its start, as its admin
// listener tells. It returns nothing for a server that has none.
func allocated(ctx context.Context, admin string) (report.Allocated, error) {
	if admin == "" {
		return report.Allocated{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return report.Allocated{}, fmt.Errorf("read allocations: %w", err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return report.Allocated{}, fmt.Errorf("read allocations: %w", err)
	}
	defer resp.Body.Close()
	var a report.Allocated
	found := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var to *float64
		switch name {
		case "go_memstats_mallocs_total":
			to = &a.Objects
		case "go_memstats_alloc_bytes_total":
			to = &a.Bytes
		default:
			continue
		}
		if *to, err = strconv.ParseFloat(value, 64); err != nil {
			return report.Allocated{}, fmt.Errorf("read allocations: %w", err)
		}
		found++
	}
	if found != 2 {
		return report.Allocated{}, fmt.Errorf("read allocations: %d of 2 metrics in the answer with status %d", found, resp.StatusCode)
	}
	return a, nil
}
