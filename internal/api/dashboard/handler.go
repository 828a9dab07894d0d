package dashboard

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Options configure a [Handler].
type Options struct {
	query.Service // Bound, Holders and PieceTimeout are not used

	// Metrics are those of the server; [SystemMetrics] has the names of those that the page
	// uses.
	Metrics *metrics.Values
}

// A Handler serves the page and what only the page needs. Its methods are
// http.HandlerFuncs.
type Handler struct {
	opt   Options
	files *files

	mu       sync.Mutex
	system   []byte    // guarded by mu
	systemAt time.Time // guarded by mu
	history  history   // guarded by mu
}

// New returns a Handler.
func New(opt Options) (*Handler, error) {
	page, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	h := &Handler{opt: opt, history: history{began: now, at: now}}
	h.files, err = loadFiles(page, opt.Gate.SignIns != nil)
	return h, err
}

// Mount routes the page and what only it needs. read routes GET and HEAD of an address, and write
// another method, for requests from this site only.
func (h *Handler) Mount(read func(template string, h http.Handler),
	write func(template string, h http.Handler, method string)) {
	read("/", http.HandlerFunc(h.Index))
	read("/assets/{version}/{file}", http.HandlerFunc(h.Asset))
	read("/v1/system", http.HandlerFunc(h.System))
	read("/v1/session", http.HandlerFunc(h.Session))
	write("/v1/session", http.HandlerFunc(h.SignIn), http.MethodPost)
	write("/v1/session", http.HandlerFunc(h.SignOut), http.MethodDelete)
	read("/v1/session/begin", http.HandlerFunc(h.BeginSignIn))
	read("/"+signin.CallbackPath, http.HandlerFunc(h.FinishSignIn))
}

// Index serves GET and HEAD of /.
func (h *Handler) Index(w http.ResponseWriter, r *http.Request) {
	state := sessionOut
	switch s := h.sessionState(r); {
	case !s.Tokens && !s.Provider:
		state = sessionOpen
	case s.SignedIn && s.AllDevices:
		state = sessionAll
	case s.SignedIn:
		state = sessionSome
	}
	h.files.index[state].ServeHTTP(w, r)
}

// Asset serves GET and HEAD of /assets/{version}/{file}.
func (h *Handler) Asset(w http.ResponseWriter, r *http.Request) {
	f := h.files.byName[h.opt.Param(r, "file")]
	if f == nil || h.opt.Param(r, "version") != h.files.version {
		h.opt.Problems.NotFound.Write(w, r, "The page has changed: load it again.")
		return
	}
	f.ServeHTTP(w, r)
}

// A sessionState is the body of GET /v1/session.
type sessionState struct {
	Tokens     bool       `json:"tokens"`             // the server has tokens
	SignedIn   bool       `json:"signed_in"`          // always true without tokens
	AllDevices bool       `json:"all_devices"`        // the session may read all devices
	Provider   bool       `json:"provider,omitempty"` // people sign in at a provider
	Expires    *time.Time `json:"expires,omitempty"`  // when the session ends at the latest; nil means never
}

// Session serves GET and HEAD of /v1/session: whether the sender is signed in.
func (h *Handler) Session(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("renew") {
		gate.RenewKiosk(h.opt.Gate, w, r, time.Now())
	}
	query.WriteJSON(w, r, h.sessionState(r))
}

func (h *Handler) sessionState(r *http.Request) sessionState {
	state := sessionState{Tokens: h.opt.Gate.Tokens != nil, SignedIn: h.opt.Gate.Open(), AllDevices: h.opt.Gate.Open(),
		Provider: h.opt.Gate.SignIns != nil}
	if access, expires, ok := h.opt.Gate.Session(r, time.Now()); ok {
		state.SignedIn, state.AllDevices = true, access.CoversAll()
		if !expires.IsZero() {
			expires = expires.UTC()
			state.Expires = &expires
		}
	}
	return state
}

// maxSignInBytes bounds the body of a sign-in, which has one token.
const maxSignInBytes = 1024

// SignIn serves POST /v1/session with {"token":"…"}. The caller rejects requests from other
// origins.
func (h *Handler) SignIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignInBytes))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&body) != nil || decoder.More() {
		h.opt.Problems.Malformed.Write(w, r, `The body must be {"token":"…"}.`)
		return
	}
	if h.opt.Gate.Tokens == nil {
		detail := "This server has no tokens."
		if h.opt.Gate.SignIns != nil {
			detail = "This server has no tokens of its own. Sign in with your account."
		}
		h.opt.Problems.NotFound.Write(w, r, detail)
		return
	}
	if h.verdict(w, r, h.opt.Gate.SignIn(w, r, body.Token, time.Now())) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	}
}

// SignOut serves DELETE /v1/session. The caller rejects requests from other origins.
func (h *Handler) SignOut(w http.ResponseWriter, r *http.Request) {
	if address := h.opt.Gate.SignOut(w, r, time.Now()); address != "" {
		query.WriteJSON(w, r, map[string]string{"continue": address})
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// verdict reports whether a request is allowed. If not, it answers the request.
func (h *Handler) verdict(w http.ResponseWriter, r *http.Request, v gate.Verdict) bool {
	return !h.opt.Refuse(w, r, v, "A token with the read right is needed, and one that is not bound to subjects.")
}

// SystemMetrics are the names of the metrics in the answer of [Handler.System]. None of their
// labels names a device, a client or a token. It is never modified.
var SystemMetrics = []string{
	"pulsegate_readings_total", "pulsegate_refused_requests_total", "pulsegate_auth_refused_total",
	"pulsegate_connections",
	"pulsegate_commit_duration_seconds", "pulsegate_commit_group_readings", "pulsegate_commit_failures_total",
	"pulsegate_queue_readings",
	"pulsegate_live_subscribers", "pulsegate_store_devices", "pulsegate_store_size_bytes", "pulsegate_store_log_bytes",
	"pulsegate_store_free_bytes", "pulsegate_store_min_free_bytes", "pulsegate_store_failed",
	"process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds",
}

// systemEvery bounds how often the metrics are gathered, however many clients ask.
const systemEvery = time.Second

// System serves GET and HEAD of /v1/system: some of the metrics, at most a second old, and the
// history that [Handler.Run] records. They are about all devices, so that a token for some devices is
// not enough.
func (h *Handler) System(w http.ResponseWriter, r *http.Request) {
	access, verdict := h.opt.May(r, token.Read)
	if !h.verdict(w, r, verdict) {
		return
	}
	if !access.CoversAll() {
		h.opt.Gate.NotCovered(&access, gate.PeerOf(r))
		h.opt.Problems.Forbidden.Write(w, r, "The token is for some devices only.")
		return
	}
	text, err := h.systemText(time.Now())
	if err != nil {
		h.opt.Report(err)
		h.opt.Problems.ReadFailed.Write(w, r, "")
		return
	}
	query.WriteObject(w, r, text)
}

// instant is the format of times.
const instant = "2006-01-02T15:04:05.000Z"

func (h *Handler) systemText(now time.Time) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.system != nil && now.Sub(h.systemAt) < systemEvery {
		return h.system, nil
	}
	values, err := h.opt.Metrics.Snapshot()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	text = append([]byte(`{"time":"`+now.UTC().Format(instant)+`","metrics":`), text...)
	text = h.history.append(append(text, `,"history":`...))
	h.system, h.systemAt = append(text, "}\n"...), now
	return h.system, nil
}
