// Tests of the page in Chromium, and its screenshots. A module of its own, so that no user
// of Pulsegate inherits the library that drives the browser:
//
//	cd browser && go test ./...
module github.com/pulsegate/pulsegate/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
