package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/pulsegate/pulsegate/mux"
)

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func Example() {
	r := mux.NewRouter()
	r.HandleFunc("/articles/{category}/{id:[0-9]+}", func(w http.ResponseWriter, req *http.Request) {
		vars := mux.Vars(req)
		fmt.Println(vars["category"], vars["id"])
	}).Methods("GET").Name("article")

	get(r, "GET", "/articles/go/42")
	u, err := r.Get("article").URL("category", "tea", "id", "7")
	fmt.Println(u, err)
	// Output:
	// go 42
	// /articles/tea/7 <nil>
}

func ExampleRoute_Subrouter() {
	r := mux.NewRouter()
	api := r.PathPrefix("/v1").Subrouter()
	api.HandleFunc("/devices", func(http.ResponseWriter, *http.Request) { fmt.Println("devices") })
	get(r, "GET", "/v1/devices")
	// Output: devices
}

func ExampleVar() {
	r := mux.NewRouter()
	r.HandleFunc("/devices/{device}", func(_ http.ResponseWriter, req *http.Request) {
		fmt.Println(mux.Var(req, "device"))
	})
	get(r, "GET", "/devices/ppg-000123")
	// Output: ppg-000123
}

// The template of the matched route is in the request's Pattern: a label that
// does not contain the variables' values. If the request is shared, code around
// the router finds it too.
func ExampleRouter_ShareRequest() {
	r := mux.NewRouter().ShareRequest(true)
	r.HandleFunc("/devices/{device}", func(http.ResponseWriter, *http.Request) {})
	counted := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ServeHTTP(w, req)
		fmt.Println("requests_total", req.Pattern)
	})
	get(counted, "GET", "/devices/ppg-000123")
	// Output: requests_total /devices/{device}
}

func ExampleRouter_AllowHeader() {
	r := mux.NewRouter().AllowHeader(true)
	r.HandleFunc("/readings", func(http.ResponseWriter, *http.Request) {}).Methods("GET", "POST")
	w := get(r, "DELETE", "/readings")
	fmt.Println(w.Code, w.Header().Get("Allow"))
	// Output: 405 GET, POST
}

func ExampleRouter_AnswerOptions() {
	r := mux.NewRouter().AnswerOptions(true)
	r.HandleFunc("/readings", func(http.ResponseWriter, *http.Request) {}).Methods("GET", "POST")
	w := get(r, "OPTIONS", "/readings")
	fmt.Println(w.Code, w.Header().Get("Allow"))
	// Output: 204 GET, OPTIONS, POST
}

func ExampleRouter_PathValues() {
	r := mux.NewRouter().PathValues(true)
	r.HandleFunc("/devices/{device}", func(_ http.ResponseWriter, req *http.Request) {
		fmt.Println(req.PathValue("device"))
	})
	get(r, "GET", "/devices/ppg-000123")
	// Output: ppg-000123
}

func ExampleRouter_PermanentRedirect() {
	r := mux.NewRouter().StrictSlash(true).PermanentRedirect(true)
	r.HandleFunc("/readings", func(http.ResponseWriter, *http.Request) {})
	w := get(r, "POST", "/readings/")
	fmt.Println(w.Code, w.Header().Get("Location"))
	// Output: 308 /readings
}

func ExampleRouter_Conflicts() {
	r := mux.NewRouter()
	h := func(http.ResponseWriter, *http.Request) {}
	r.HandleFunc("/devices/{device}", h)
	r.HandleFunc("/devices/latest", h)
	for _, c := range r.Conflicts() {
		fmt.Println(c)
	}
	// Output: route /devices/latest cannot match: route /devices/{device}, added before, takes all of its requests
}

func ExampleRouter_Routes() {
	r := mux.NewRouter()
	h := func(http.ResponseWriter, *http.Request) {}
	r.HandleFunc("/livez", h).Name("live")
	api := r.PathPrefix("/v1").Subrouter()
	api.HandleFunc("/devices/{device}", h).Methods("GET")
	fmt.Print(r.Routes())
	// Output:
	// *    /livez  live
	// *    /v1…    (no handler)
	// GET    /v1/devices/{device}
}

func ExampleRouter_Update() {
	r := mux.NewRouter()
	h := func(http.ResponseWriter, *http.Request) {}
	// Requests see both routes with their methods, or neither.
	r.Update(func() {
		r.HandleFunc("/readings", h).Methods("GET")
		r.HandleFunc("/admin", h).Methods("POST")
	})
	fmt.Println(get(r, "GET", "/admin").Code)
	// Output: 405
}
