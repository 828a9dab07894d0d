// Package share divides bounded things (connections, memory, places of readers) among
// those who hold them, so that none can shut out the others.
//
// # Promise
//
//   - A [Holder] may take more as long as it holds no more than is left. So one alone
//     takes half, two take a third each, and whoever comes next still finds something
//     (the dynamic threshold of Choudhury and Hahne, IEEE/ACM Transactions on
//     Networking 6(2), 1998, with a factor of 1).
//   - Looking that up takes neither a lock nor memory. [Holders.Get] takes a lock: it is
//     called when a connection or a request begins that is not of the fast lane.
//   - As many holders are kept as have something.
//
// # Not here
//
// No totals: what is divided is bounded where it is handed out. Only connections, which
// two listeners hand out alike, are counted here ([Conns]).
package share
