package migrate

import (
	"context"
	"errors"

	"github.com/pulsegate/pulsegate/internal/storage"
)

var errSubjects = errors.New("migrate: assignments of devices to subjects are not moved yet")

// assignments refuses stores that keep assignments, because [storage.Subjects] cannot list them:
// they would be lost silently. Otherwise there are none.
func (r *run) assignments(_ context.Context, _ bool) (all, lacking int64, err error) {
	_, fromKeeps := r.From.(storage.Subjects)
	_, toKeeps := r.To.(storage.Subjects)
	if fromKeeps || toKeeps {
		return 0, 0, errSubjects
	}
	return 0, 0, nil
}
