// Package audit keeps the append-only log of who was let in, who was not, and what
// was done that a reader of the records should know of: changes of tokens,
// exports, erasures, backups.
//
// # Promise
//
//   - When [Log.Append] returns nil, the record is on stable storage. When [Log.Export]
//     returns nil, records on stable storage cover the export.
//   - No input can flood the log: refused requests go through [Log.Refused], which
//     writes the first ones of each minute, and one record with the counts of the
//     others. It never blocks, and takes a constant amount of memory. Exports that
//     repeat are counted, and one token has 10,000 records of them in a day.
//   - A record has no field for a measured value or for a token. Tokens are named
//     by their ID, people by what the caller knows of them.
//   - The log is bounded: files of at most Options.MaxBytes, of which Options.Keep
//     older ones are kept.
//   - A record that was changed, removed or put in is found by [VerifyLog], and so is
//     a damaged one. Without a key it does not find what was done at the end of the log.
//   - A running Log notices when the file is not the one that was written last: removed,
//     cut, or replaced. It then writes nothing, and every call fails.
//   - Several processes may write to one log at a time: a server and the commands
//     beside it.
//
// # The files
//
// The log at PATH is continued in PATH; when that is full it becomes PATH.1, and
// what was PATH.1 becomes PATH.2. A record is one line of JSON:
//
//	{"seq":7,"time":"2026-11-21T10:00:00.123Z","event":"token.created","token":"afd37bdffa6b","gateway":"bed-7","rights":"write","actor":"anna","chain":"…"}
//
// seq counts from 1 through all files. chain is, in hexadecimal digits, the
// SHA-256 of the 32 bytes of the chain before it, followed by the line up to
// ,"chain". The first record of each file is log.started, which repeats the chain
// before it as prev (zeros at the very first), so that each file can be verified by
// itself, and a row of files as a whole. Event.String lists the events; fields
// that say nothing are left out.
//
// The chain has no key. Whoever may write to the file can replace its end, or all
// of it, by another valid one, while no process has the log open. With a [Key], which
// lies elsewhere, the log is signed: a record log.signed holds the signature of the
// chain before it, and the file beside the key, KEY.head, names the newest one. What was
// signed cannot be changed or cut off unnoticed by somebody without the key. Or let
// [Options].Copy send the lines elsewhere as they come; [Syslog] does.
//
// # Crashes
//
// A record that was cut off by a crash was never acknowledged. The next process
// cuts it off, and says so in a record log.recovered with the number of bytes.
// Where valid lines follow a bad one it was no crash: Open refuses the file with
// [ErrCorrupt], so that it is looked at before it is put away.
//
// # Not here
//
// No decisions about what is worth a record, and no reading of tokens or requests.
package audit
