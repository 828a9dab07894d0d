package dashboard

import (
	"html/template"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
)

// BeginSignIn serves GET of /v1/session/begin: it sends the browser to the provider.
func (h *Handler) BeginSignIn(w http.ResponseWriter, r *http.Request) {
	if h.opt.Gate.SignIns == nil {
		h.opt.Problems.NotFound.Write(w, r, "People do not sign in at a provider here.")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet || !gate.OwnPage(r) {
		// Another page shall not sign anybody in, which would end the session that there is.
		http.Redirect(w, r, h.opt.Gate.SignIns.Page(), http.StatusSeeOther)
		return
	}
	address, err := gate.BeginSignIn(h.opt.Gate, w)
	if err != nil {
		h.after(w, http.StatusServiceUnavailable, "The provider of your account does not answer. Try again in a minute.")
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// FinishSignIn serves GET of /v1/session/callback, to which the provider sends the browser back.
func (h *Handler) FinishSignIn(w http.ResponseWriter, r *http.Request) {
	if h.opt.Gate.SignIns == nil || r.Method != http.MethodGet {
		h.opt.Problems.NotFound.Write(w, r, "People do not sign in at a provider here.")
		return
	}
	switch gate.FinishSignIn(h.opt.Gate, w, r, time.Now()) {
	case gate.Allowed:
		h.after(w, http.StatusOK, "")
	case gate.Forbidden:
		h.after(w, http.StatusForbidden, "Your account may not read here. Ask those who administer this server.")
	case gate.Unavailable:
		h.after(w, http.StatusServiceUnavailable, "The provider of your account does not answer. Try again in a minute.")
	default:
		h.after(w, http.StatusUnauthorized, "You are not signed in. Begin again.")
	}
}

// afterPage leads back to the page. Of a redirection by another site, the browser would not send the cookie of the
// session, which is SameSite=Strict; of a page it does.
var afterPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in – Pulsegate</title>
<link rel="stylesheet" href="{{.Page}}assets/{{.Version}}/style.css">
<link rel="icon" href="{{.Page}}assets/{{.Version}}/icon.svg">
{{- if not .Why}}
<meta http-equiv="refresh" content="0;url={{.Page}}">
{{- end}}
</head>
<body>
<main>
{{- if .Why}}
<h1>Sign in</h1>
<p role="alert" class="error">{{.Why}}</p>
{{- end}}
<p><a href="{{.Page}}">{{if .Why}}Back to the page{{else}}You are signed in{{end}}</a></p>
</main>
</body>
</html>
`))

// after answers with a page that says why nobody has signed in; "" means somebody has.
func (h *Handler) after(w http.ResponseWriter, status int, why string) {
	for i := 0; i < len(pageHeader); i += 2 {
		w.Header().Set(pageHeader[i], pageHeader[i+1])
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// An error means that the client has disconnected.
	_ = afterPage.Execute(w, struct{ Page, Version, Why string }{h.opt.Gate.SignIns.Page(), h.files.version, why})
}
