package forward

import (
	"context"
	"time"
)

// SetWait makes w call wait between two attempts.
func (w *Webhook) SetWait(wait func(ctx context.Context, d time.Duration) error) { w.wait = wait }
