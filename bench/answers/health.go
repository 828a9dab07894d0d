package answers

import (
	"encoding/json"
	"net/http"

	"github.com/pulsegate/pulsegate/health"
)

// HealthAnswer is the answer of every form of Health, ignoring white space.
const HealthAnswer = `{"status":"ok"}`

// Health returns the forms of a health endpoint.
func Health() []Form {
	prepared := []byte(HealthAnswer)
	return []Form{
		{Before, http.HandlerFunc(marshalHealth)},
		{After, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(prepared)
		})},
		{Pulsegate, health.New(health.Options{}).Healthz()},
	}
}

func marshalHealth(w http.ResponseWriter, _ *http.Request) {
	data, err := json.MarshalIndent(&struct {
		Status string `json:"status"`
	}{"ok"}, "", "  ")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data)
}
