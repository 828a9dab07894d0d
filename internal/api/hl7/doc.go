// Package hl7 accepts readings in HL7 v2 messages: ORU^R01, as IHE's profile PCD-01 has them
// (https://profiles.ihe.net/DEV/, Volume 2).
//
// # Promise
//
// An OBX with a value is a reading, or half of a blood pressure. MSA-1 is AA only if the readings of all OBX that are
// not left out are on stable storage. It is AE if some were rejected, each with an ERR segment that says where and
// why, and AR if the message was rejected as a whole. There is no answer if something of the message may be stored
// later. In the enhanced mode, MSH-15 decides whether there is a CA, CE or CR, and MSH-16 whether there is an AA, AE
// or AR. No text of an answer has a measured value or an identifier of a patient, and an answer has only what the
// client's version of HL7 has. If an answer cannot be sent, what has already arrived from the client is still stored;
// likewise if a message that may be stored later has a client that takes silence for success.
//
// Nothing is rounded, converted or guessed: not a value, a unit, a time, a zone, nor a device.
//
// # What is stored of a message
//
//   - An OBX without a value (OBX-5) is the structure of the device: a system, a virtual device, a channel or a
//     group. OBX below it by OBX-4 inherit its device and its time. An OBX with a code of the partitions 1 and 8 of
//     IEEE
//     11073-10101 describes the device or the message. Neither is a reading.
//   - OBX-2 is NM, and OBX-5 one number with at most the decimals of its sign.
//   - OBX-3 is a code of IEEE 11073-10101 (MDC) or LOINC (LN) that a sign has, or both: see package codes. If a message
//     has several sources of a sign for one device and time, the first valid one in the order of their codes is stored.
//   - OBX-6 is the unit of the sign, in UCUM, as a code of MDC, or in another spelling of it. An annotation in
//     braces, such as {beat}, is no part of a unit.
//   - An OBX is left out if OBX-8 has a flag with which the device disowns the value, such as INV: see [codes.Doubt].
//     The other half of a blood pressure is left out with it.
//   - OBX-11 is R or F. Devices send R, "results entered, not verified": nobody verifies a monitor's values before
//     they are sent, so PCD-01 has them so. F is sent by systems that have verified them. Preliminary and partial
//     values
//     (P, S) are not stored, because the final one would contradict them. Neither are corrections and deletions (C, D,
//     W, U), because a stored reading never changes, nor values of results that cannot be obtained (X).
//   - The time is OBX-14, else that of the structure above, else OBR-7. It has seconds, and is cut to the
//     millisecond. A time without an offset has that of MSH-7, as HL7 has it, else it is a time in [Options.Zone]; one
//     that this zone has twice, or not at all, is rejected.
//   - The device is EI.1 of OBX-18, else EI.3; else that of PRT-10 after the OBX; else that of the structure above;
//     else
//     that of PRT-10 after the OBR; else the one of the message's origin. MSH-3 is never the device: it names the
//     gateway, by its universal ID or else by its name, if it is a name of Pulsegate.
//   - The patient is the identifier in PID-3 that is of [Options.Authority].
//
// # Characters
//
// MSH-18 is empty, ASCII, UNICODE UTF-8, or 8859/1 to 8859/15. Other character sets are rejected. Unless MSH-18 is
// one of 8859, bytes that are not UTF-8 may belong to a set whose characters contain separators. They reject what
// they may have changed: their OBX, the readings of their OBR, and what inherits from their OBX or PRT. The
// separators are those of MSH-1 and MSH-2. A segment ends with CR. An LF after it is skipped; any other LF is data.
// In a message without a CR, segments end with LF.
//
// # Memory
//
// A message takes up at most twice its length beside its readings, which have a maximum and take up about 340 bytes
// each. A message with more of them is rejected before it takes up memory for any.
//
// # Not here
//
// Connections and framing: see the server. Patients are compared and assigned by the store: see storage.Claim.
package hl7
