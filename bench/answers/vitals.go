package answers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/sirupsen/logrus"
)

// VitalsPath is the path to which readings are posted.
const VitalsPath = "/v1/readings"

// VitalsAnswer is the answer of every form of Vitals, ignoring white space.
const VitalsAnswer = `{"status":"stored"}`

// A Reading is a struct as services use it with encoding/json: with pointers for
// optional fields.
type Reading struct {
	Device    string    `json:"device" binding:"required"`
	Time      time.Time `json:"time" binding:"required"`
	Systolic  *float64  `json:"systolic_mmhg,omitempty"`
	Diastolic *float64  `json:"diastolic_mmhg,omitempty"`
	SpO2      *float64  `json:"spo2_pct,omitempty"`
	HeartRate *float64  `json:"heart_rate_bpm,omitempty"`
	Resting   *float64  `json:"resting_heart_rate_bpm,omitempty"`
}

// A Status is the answer of services that marshal their answers.
type Status struct {
	Status string `json:"status"`
}

// maxBodyBytes bounds a body in the forms before and after. The form pulsegate has its
// own bound.
const maxBodyBytes = 16 << 10

// Vitals returns the forms of a handler that accepts one reading and stores nothing.
// Only the form pulsegate validates the reading and uses a group commit, with a store
// that discards everything. The caller must call stop after using the forms.
func Vitals() (forms []Form, stop func() error, err error) {
	core, err := ingest.New(nowhere{}, problem.New(), ingest.Config{})
	if err != nil {
		return nil, nil, fmt.Errorf("create core: %w", err)
	}
	stop = func() error { return core.Close(context.Background()) }
	return []Form{
		{Before, BeforeVitals(io.Discard)},
		{After, http.HandlerFunc(afterVitals)},
		{Pulsegate, core.Handler(nil)},
	}, stop, nil
}

// nowhere is a store that discards everything.
type nowhere struct{}

func (nowhere) Append(group []*storage.Entry) error {
	for _, e := range group {
		e.Outcome = storage.Stored
	}
	return nil
}

// BeforeVitals returns a handler as in a typical first version of a service. It logs to
// w.
func BeforeVitals(w io.Writer) http.HandlerFunc {
	log := logrus.New()
	log.SetOutput(w)
	return func(w http.ResponseWriter, r *http.Request) {
		in, ok := unmarshalReading(w, r)
		if !ok {
			return
		}
		log.WithFields(logrus.Fields{"device": in.Device, "path": r.URL.Path}).Info("reading received")
		answer, err := json.MarshalIndent(Status{"stored"}, "", "  ")
		if err != nil {
			http.Error(w, "cannot answer", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Write(answer)
	}
}

func afterVitals(w http.ResponseWriter, r *http.Request) {
	if _, ok := unmarshalReading(w, r); !ok {
		return
	}
	w.Header().Set("Content-Type", contentType)
	io.WriteString(w, VitalsAnswer)
}

// unmarshalReading decodes the body, or answers the request with an error.
func unmarshalReading(w http.ResponseWriter, r *http.Request) (in Reading, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return in, false
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, "not a reading", http.StatusBadRequest)
		return in, false
	}
	return in, true
}

// Posts is a cycle of requests with different readings. Preparing the next one does not
// allocate.
type Posts struct {
	texts []string
	next  int
	r     *http.Request
	body  body
}

// NewPosts returns n requests, n at least 1, with readings that differ in their times.
func NewPosts(n int) *Posts {
	p := &Posts{r: httptest.NewRequest(http.MethodPost, VitalsPath, nil)}
	p.r.Header.Set("Content-Type", contentType)
	from := time.Now().Add(-time.Hour).UTC()
	for i := range n {
		at := from.Add(time.Duration(i) * time.Millisecond)
		p.texts = append(p.texts, fmt.Sprintf(`{"device":"wearable-%06d","time":"%s","systolic_mmhg":%d,"diastolic_mmhg":79,`+
			`"spo2_pct":97.5,"heart_rate_bpm":72.5,"resting_heart_rate_bpm":58.5}`, i, at.Format("2006-01-02T15:04:05.000Z"),
			110+i%40))
	}
	return p
}

// Next returns the next request. It is valid until the next call of Next.
func (p *Posts) Next() *http.Request {
	text := p.texts[p.next]
	p.next = (p.next + 1) % len(p.texts)
	p.body.Reset(text)
	p.r.Body = &p.body
	p.r.ContentLength = int64(len(text))
	return p.r
}
