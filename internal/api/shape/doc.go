// Package shape is the language in which mappings say how a sender writes what Pulsegate stores: times, numbers,
// missing values and names. Every source of mappings reads its texts with it.
//
// # Promise
//
//   - A value is stored as the source has it, or times a factor or converted to another unit exactly. One that does not
//     fit the decimals of its sign is rejected, unless the mapping says round: it is then rounded once, half to even.
//   - A time is an instant. One without a zone, a day that its month does not have, and a local time that the zone does
//     not have are rejected; one that the zone has twice, too, unless the mapping says which.
//   - Two texts that one mapping reads never give one name: see [Name].
//   - [Read] and [Table.Compile] reject what cannot be meant, with the key and the reason.
//   - Neither values nor texts of a source are in an error.
//
// # Not here
//
// Where a source has its texts: the packages that read one, such as mapping, find the places of a [Shape]. What the
// places of JSON and XML are, which several packages read, is here: [Tree], [Attribute].
package shape
