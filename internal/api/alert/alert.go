package alert

import (
	"maps"
	"net/url"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Alert is active, or has ended.
type Alert struct {
	Rule        *Rule
	Device      vitals.Name
	SinceUnixMs int64 // by measured time
	EndedUnixMs int64 // by the server's clock; 0 means that it is active

	Place roster.Device // what people call the device; only of alerts that are shown or sent
}

// same reports whether two alerts have the same labels.
func (a *Alert) same(b *Alert) bool {
	return a.Device == b.Device && a.Rule.sameLabels(b.Rule)
}

// Labels returns the labels by which Alertmanager knows the alert. Those of the rule replace those of its device.
func (a *Alert) Labels() map[string]string {
	labels := map[string]string{}
	if a.Place.Label != "" {
		labels["device_label"] = a.Place.Label
	}
	if a.Place.Group != "" {
		labels["group"] = a.Place.Group
	}
	maps.Copy(labels, a.Rule.Labels)
	labels["alertname"], labels["device"] = a.Rule.Name, a.Device.String()
	if a.Rule.Field != "" {
		labels["sign"] = a.Rule.Field
	}
	return labels
}

// around is how much time before and after the beginning of an alert the page shows.
const around = 30 * time.Minute

// PageURL returns the URL of the device at the time when the alert began, on a page.
func (a *Alert) PageURL(page string) string {
	since := time.UnixMilli(a.SinceUnixMs).UTC()
	from := since.Add(-a.Rule.For - a.Rule.Silent - around)
	return page + "#device?" + url.Values{
		"device": {a.Device.String()}, "from": {from.Format(time.RFC3339)}, "to": {since.Add(around).Format(time.RFC3339)},
	}.Encode()
}
