// Package fhir serves and receives readings as resources of HL7 FHIR R4 (4.0.1) in JSON:
// Observations, the Devices that measured them, and the Patients who wore the devices.
//
// # Promise
//
// One Observation is made from each sign group of a reading: blood pressure, and each other sign
// that the store has. Its values are the stored decimals, its
// effectiveDateTime has the offset from UTC that was sent, and its id depends on device, time
// and sign group only, so that it never changes.
//
// An Observation belongs to the subject to which its device was assigned at the measured time.
// A reading of a device that was assigned to nobody at that time is not served.
//
// Searches are streamed: a page of any length needs memory for a few chunks of records. Pages
// are stable like those of package query, and access is checked again for each page. A link to
// the next page is encrypted, so it does not reveal the patient.
//
// Every search of a patient's observations is in the audit log before its first byte is sent, and so is every file of
// an export with what patients wore.
//
// A client that applies an export, and then each export since the one before, has what its searches find.
//
// A received Observation becomes a reading of its device through the admission and the group
// commit of package ingest. It is stored exactly, or rejected.
//
// Errors are OperationOutcomes with the types of package problem.
//
// # Not here
//
// No storage: a [Reader] and [Subjects] provide records and assignments, and [storage.Changes] what has changed. No
// terminology service, no XML, no subscriptions.
package fhir
