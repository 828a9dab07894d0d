// Package share divides bounded resources (connections, memory, places of readers) among
// their holders, so that none can exhaust them for the others.
//
// # Promise
//
//   - A [Holder] may take more as long as it holds no more than is left. A single holder
//     gets half, two get a third each, and a new one always finds some left (the dynamic threshold of Choudhury and Hahne, IEEE/ACM Transactions on
//     Networking 6(2), 1998, with a factor of 1).
//   - [Holder.Take] takes no lock and does not allocate. [Holders.Get] takes a lock; it is
//     called when a connection, or a request of the full lane, begins.
//   - Only holders that hold something are kept.
//
// # Not here
//
// No totals: a resource is bounded where it is handed out. Only connections are counted
// here ([Conns]), because several listeners hand them out in the same way.
package share
