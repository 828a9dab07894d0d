package main_test

import "testing"

// The commands of docs/fhir.md have the effects that it describes. Those of smart-fetch are followed by TestSMARTFetch
// of docs/test.
func followFHIRPage(t *testing.T) {
	blocks := pageBlocks(t, "fhir.md", 6)
	assign, search, form, export, send := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]
	r := newReader(t)
	r.follow("pulsegate serve --audit pulsegate-audit.log\n")
	r.follow(assign)
	r.want(`{"status":"stored"}`)
	r.follow(search)
	r.want(`"fullUrl":"http://127.0.0.1:8080/fhir/Observation/hr-mwq8lds0-ppg-000123"`,
		`"subject":{"reference":"Patient/p-17"},"effectiveDateTime":"2026-11-21T12:00:00.000+02:00",`+
			`"device":{"reference":"Device/ppg-000123"},"valueQuantity":{"value":72,"unit":"beats/minute",`+
			`"system":"http://unitsofmeasure.org","code":"/min"}},"search":{"mode":"match"}}`)
	r.follow(form)
	r.want(`"id":"spo2-mwq8lds0-ppg-000123"`, `"value":97.5`, `"relation":"self"`)
	r.follow(export)
	r.want("HTTP/1.1 202 Accepted", "Content-Location: http://127.0.0.1:8080/fhir/$export/")
	r.follow(send)
	r.want(`"id":"hr-mwq8lejs-ppg-000123"`, `"valueQuantity":{"value":73,`)
	r.run("cat pulsegate-audit.log.clients")
	r.want(`"event":"exported","subject":"p-17"`)
	r.stop()
}
