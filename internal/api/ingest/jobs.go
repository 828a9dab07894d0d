package ingest

// A jobList keeps unused jobs. A sync.Pool in its place is emptied by every second
// garbage collection, so that under a load of batches most jobs were made anew,
// which was most of what brought the collections about.
//
// Invariant: room is the sum of the kept jobs' rooms, and at most maxKeptRoom.
type jobList struct {
	jobs []*Job
	room int
}

const (
	// maxKeptRoom bounds the unused jobs that are kept in one place, by the
	// readings that they have room for, each of which takes about 250 bytes.
	maxKeptRoom = 1 << 15

	// decoderRoom is what a decoder counts.
	decoderRoom = 16
)

// room returns how many readings j has room for, and what it counts besides.
func (j *Job) room() int {
	if j.ownsDecoder {
		return max(cap(j.batch.Readings), decoderRoom)
	}
	return max(cap(j.batch.Readings), 1)
}

// get returns the job that was used last, or nil when there is none.
func (l *jobList) get() *Job {
	last := len(l.jobs) - 1
	if last < 0 {
		return nil
	}
	j := l.jobs[last]
	l.jobs[last] = nil
	l.jobs = l.jobs[:last]
	l.room -= j.room()
	return j
}

// put keeps j, or leaves it to the garbage collector when enough are kept.
func (l *jobList) put(j *Job) {
	if room := j.room(); l.room+room <= maxKeptRoom {
		l.jobs = append(l.jobs, j)
		l.room += room
	}
}
