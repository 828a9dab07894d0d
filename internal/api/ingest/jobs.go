package ingest

import "sync"

// jobList keeps unused jobs. A sync.Pool in its place is emptied by every second
// garbage collection, so that under a load of batches most jobs were made anew,
// which was most of what brought the collections about.
//
// Invariant: room is the sum of the kept jobs' rooms, and at most maxKeptRoom.
type jobList struct {
	mu   sync.Mutex
	jobs []*Job
	room int
}

const (
	// maxKeptRoom bounds the unused jobs that are kept in one place, by the
	// readings that they have room for, each of which takes about 250 bytes.
	maxKeptRoom = 1 << 15

	// leastRoom is what a job without room counts, for its decoder.
	leastRoom = 16
)

// jobRoom returns how many readings j has room for, or what it counts if that is
// more.
func (j *Job) jobRoom() int { return max(cap(j.batch.Readings), leastRoom) }

// get returns the job that was used last, or nil when there is none.
func (l *jobList) get() *Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.jobs) - 1
	if last < 0 {
		return nil
	}
	j := l.jobs[last]
	l.jobs[last] = nil
	l.jobs = l.jobs[:last]
	l.room -= j.jobRoom()
	return j
}

// put keeps j, or leaves it to the garbage collector when enough are kept.
func (l *jobList) put(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := j.jobRoom(); l.room+room <= maxKeptRoom {
		l.jobs = append(l.jobs, j)
		l.room += room
	}
}
