package mqtt

import (
	"cmp"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options configure a [Server]. Fields without a default are required.
type Options struct {
	front.Options

	Signs  *vitals.Signs
	Topic  Topic
	Mapped []Mapped // further topics; the first that matches is used

	StartTimeout time.Duration // for the CONNECT packet; default 10 s
}

// A service is what the lanes of a Server share.
type service struct {
	opt      Options
	topics   []Mapped       // the usual one first, whose input is nil
	held     *atomic.Uint64 // of the Server
	counters counters
}

type counters struct {
	accepted, refused, slowed atomic.Uint64
	publications              [3]atomic.Uint64 // by QoS
	endings                   [numEndings]atomic.Uint64
}

// A Server serves the connections of a listener.
type Server struct {
	*front.Server
	service
}

// Serve serves the connections of l, which it takes ownership of. The caller must call Shutdown. After an error l is
// unchanged.
func Serve(l net.Listener, opt Options) (*Server, error) {
	s := &Server{Server: front.New(&opt.Options)}
	opt.StartTimeout = cmp.Or(opt.StartTimeout, 10*time.Second)
	s.service = service{opt: opt, held: &s.Held, topics: append([]Mapped{{Topic: opt.Topic}}, opt.Mapped...)}
	var loops front.Loops
	if opt.FastLane {
		var err error
		if loops, err = s.startLoops(l); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	s.Server.Serve(l, loops, s.serve)
	return s, nil
}
