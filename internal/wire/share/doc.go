// Package share divides bounded resources (connections, memory, places of readers) among
// their holders, so that no holder can exhaust them.
//
// # Promise
//
//   - A [Holder] may take more as long as it holds no more than is left. A single holder
//     gets half, two get a third each, and some is always left for a new holder (the
//     dynamic threshold of Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2),
//     1998, with a factor of 1).
//   - [Holder.Take] takes no lock and does not allocate. [Holders.Get] takes a lock; call
//     it once for each connection, or for each request of the full lane.
//   - A [Holders] retains a holder only while it is in use.
//
// # Not here
//
// No totals: the code that allocates a resource bounds it. Only connections are counted
// here ([Conns]), because several listeners count them in the same way.
package share
