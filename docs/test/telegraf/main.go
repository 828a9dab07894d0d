// Command telegraf writes metrics as Telegraf does, with the outputs influxdb and influxdb_v2:
//
//	telegraf CONFIG < points.json
//
// CONFIG is a file of Telegraf's with one output. Each line of standard input is the list of points of one write, with
// times in ns. After each, the command prints how many metrics the output keeps to send them again. Telegraf logs to
// standard error. The module is one of its own because Telegraf has many dependencies.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/influxdata/telegraf/config"
	"github.com/influxdata/telegraf/metric"
	_ "github.com/influxdata/telegraf/plugins/outputs/influxdb"
	_ "github.com/influxdata/telegraf/plugins/outputs/influxdb_v2"
)

// A write is a line of standard input.
type write struct {
	Points []struct {
		Measurement string
		Tags        map[string]string
		Fields      map[string]any
		Time        int64
	}
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	c := config.NewConfig()
	if err := c.LoadConfig(os.Args[1]); err != nil {
		return err
	}
	output := c.Outputs[0]
	if err := output.Init(); err != nil {
		return err
	}
	if err := output.Connect(); err != nil {
		return err
	}
	defer output.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return err
		}
		for _, p := range w.Points {
			output.AddMetric(metric.New(p.Measurement, p.Tags, p.Fields, time.Unix(0, p.Time)))
		}
		if err := output.Write(); err != nil {
			log.Print(err)
		}
		fmt.Println("kept", output.BufferLength())
	}
	return lines.Err()
}
