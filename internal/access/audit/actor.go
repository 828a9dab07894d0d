package audit

import (
	"fmt"
	"os"
	"os/user"
	"strings"
)

// Actor returns the name of this process's user, for [Record].Actor.
func Actor() string {
	uid := fmt.Sprintf("uid %d", os.Getuid())
	u, err := user.Current()
	if err != nil || !printable(u.Username) || strings.Contains(u.Username, " ") {
		return uid
	}
	if text := fmt.Sprintf("%s (%s)", u.Username, uid); len(text) <= 64 {
		return text
	}
	return uid
}

// ActorResumed is the actor of an erasure that is resumed after a restart; who
// requested it is in an earlier record.
const ActorResumed = "resumed"
