package lines_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/fronttest"
	"github.com/pulsegate/pulsegate/internal/api/fronttest/lines"
	"github.com/pulsegate/pulsegate/vitals"
)

// The example passes the tests of all fronts.
func TestFront(t *testing.T) {
	fronttest.Run(t, fronttest.Front{
		Serve: func(_ testing.TB, l net.Listener, opt front.Options) fronttest.Server {
			return lines.Serve(l, opt, vitals.NewSigns())
		},
		Message: func(n int) string { return fmt.Sprintf("d %d spo2_pct=97\n", n) },
		Next: func(in *bufio.Reader) (string, error) {
			line, err := in.ReadString('\n')
			return strings.TrimSuffix(line, "\n"), err
		},
		Stored: func(int) string { return "stored" },
		Holds:  true,
	}, fronttest.Lane{}, fronttest.Lane{TLS: true})
}
