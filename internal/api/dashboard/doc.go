// Package dashboard serves the page for browsers: its static files, the sessions of people who
// sign in, and the metrics of the system view.
//
// # Promise
//
//   - The page makes no request to another host. Its policy (Content-Security-Policy) forbids
//     that, and scripts and styles other than its files.
//   - It works below any path: all its addresses are relative.
//   - A file's address changes with its contents, so that browsers may cache it for ever.
//   - The text of a token appears in the body of one request, and nowhere else.
//
// # Files
//
// The folder page has plain ES modules and style sheets, which are served as they are, and
// uPlot, which draws the charts. There is no build step. The first
// request for a file compresses it.
//
// # Not here
//
// No readings: the page gets them from packages query and live. No decisions about access:
// package gate has the sessions.
package dashboard
