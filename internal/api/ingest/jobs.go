package ingest

// A jobList keeps unused jobs. A sync.Pool would be emptied by every second garbage collection:
// under a load of batches most jobs were then allocated again, which caused most of the
// collections.
//
// Invariant: capacity is the sum of the kept jobs' capacities, and at most maxKeptCapacity.
type jobList struct {
	jobs     []*Job
	capacity int
}

const (
	// maxKeptCapacity bounds the capacity of the kept jobs, in readings; each takes about 250
	// bytes.
	maxKeptCapacity = 1 << 15

	// decoderCapacity is the least capacity that a job with its own decoder counts.
	decoderCapacity = 16
)

// capacity returns the number of readings that count against maxKeptCapacity for j.
func (j *Job) capacity() int {
	if j.ownsDecoder {
		return max(cap(j.batch.Readings), decoderCapacity)
	}
	return max(cap(j.batch.Readings), 1)
}

// get returns the job that was put last, or nil if there is none.
func (l *jobList) get() *Job {
	last := len(l.jobs) - 1
	if last < 0 {
		return nil
	}
	j := l.jobs[last]
	l.jobs[last] = nil
	l.jobs = l.jobs[:last]
	l.capacity -= j.capacity()
	return j
}

// put keeps j, or leaves it to the garbage collector if enough jobs are kept.
func (l *jobList) put(j *Job) {
	if n := j.capacity(); l.capacity+n <= maxKeptCapacity {
		l.jobs = append(l.jobs, j)
		l.capacity += n
	}
}
