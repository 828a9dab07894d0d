package audit

import (
	"fmt"
	"os"
	"os/user"
)

// Actor names the user of this process.
func Actor() string {
	uid := fmt.Sprintf("uid %d", os.Getuid())
	u, err := user.Current()
	if err != nil {
		return uid
	}
	for _, c := range u.Username {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return uid
		}
	}
	if text := fmt.Sprintf("%s (%s)", u.Username, uid); len(text) <= 64 {
		return text
	}
	return uid
}

// ActorResumed stands for who had asked for an erasure that was left unfinished.
const ActorResumed = "resumed"
