// Package audit keeps the append-only audit log: rejected requests, changes of tokens,
// exports, erasures and backups.
//
// # Promise
//
//   - When [Log.Append] returns nil, the record is on stable storage. When [Log.Export]
//     returns nil, records on stable storage cover the export.
//   - No input can flood the log. Rejected requests go through [Log.Refused], which
//     records the first ones of each minute, and the others in one record with counts;
//     it never blocks and uses constant memory. Repeated exports are counted, and one
//     token gets at most 10,000 export records per day.
//   - A record has no field for a measured value or for a token. Tokens are named by
//     their ID, people by a name that the caller chooses.
//   - The log is bounded: files have at most Options.MaxBytes, and Options.Keep older
//     ones are kept.
//   - [VerifyLog] detects records that were changed, removed, inserted or damaged.
//     Without a key it does not detect changes at the end of the log.
//   - A running Log detects that its file was removed, truncated or replaced. It then
//     writes nothing, and every call fails.
//   - Several processes may write to one log concurrently: a server and command-line
//     tools.
//
// # The files
//
// PATH is the file in use. When it is full, it becomes PATH.1, PATH.1 becomes PATH.2,
// and so on. A record is one line of JSON:
//
//	{"seq":7,"time":"2026-11-21T10:00:00.123Z","event":"token.created","token":"afd37bdffa6b","actor":"anna","chain":"…"}
//
// seq counts from 1 through all files. chain is, in hexadecimal digits, the SHA-256 of
// the previous record's 32-byte chain followed by the line up to ,"chain". The first
// record of each file is log.started, which repeats the previous chain as prev (zeros
// in the very first file), so that one file can be verified alone, and a sequence of
// files as a whole. [Event] lists the events; empty fields are omitted.
//
// The chain has no key. While no process has the log open, anyone who may write to the
// file can replace its end, or all of it, with another valid chain. With a [Key], which
// is kept elsewhere, the log is signed: a record log.signed has the signature of the
// chain before it, and the file KEY.head beside the key names the newest such record.
// Without the key, signed records cannot be changed or cut off unnoticed. Alternatively,
// [Options].OnLine can send the lines elsewhere as they are written; [Syslog] does.
//
// # Crashes
//
// A record that was cut off by a crash was never acknowledged. The next process removes
// it and writes a record log.recovered with the number of bytes. If valid lines follow
// a bad one, the cause was not a crash: Open returns [ErrCorrupt], and an operator must
// examine the file.
//
// # Not here
//
// No decisions about what to record, and no parsing of tokens or requests.
package audit
