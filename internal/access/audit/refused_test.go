package audit_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

// Rejected requests without a valid token do not use up the audit records for those with one:
// a client cannot use a flood to conceal which token guesses stored values.
//
// Seen to fail with the mutant shared-audit-quota.
func TestRefusedBesideFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit")
		l := open(t, path, audit.Options{Now: time.Now})
		for range 100 {
			l.Refused(audit.Refusal{Reason: audit.NoCredentials})
			l.Refused(audit.Refusal{Reason: audit.Malformed})
			l.Refused(audit.Refusal{Reason: audit.Unknown, Token: [6]byte{1}})
			l.Refused(audit.Refusal{Reason: audit.Expired, Token: [6]byte{2}})
			l.Refused(audit.Refusal{Reason: audit.BadCertificate})
		}
		for range 100 {
			l.Refused(audit.Refusal{Reason: audit.Contradictions, Token: [6]byte{0xab, 0xcd}})
		}
		synctest.Wait()
		if got, want := strings.Count(read(t, path), `"token":"abcd00000000","reason":"contradictions"`), 10; got != want {
			t.Errorf("%d records name the token, want %d:\n%s", got, want, read(t, path))
		}
		if got, want := strings.Count(read(t, path), `"event":"auth.refused"`), 20; got != want {
			t.Errorf("%d records, want %d", got, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if text := read(t, path); !strings.Contains(text, `"count":580,`) {
			t.Errorf("the others are not counted:\n%s", text)
		}
	})
}

// Refusals that could not be written are counted, and written later.
func TestRefusedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit")
		var reported reports
		l := open(t, path, audit.Options{Now: time.Now, OnTrouble: reported.add})
		aside := path + ".aside"
		move(t, path, aside)
		mkdir(t, path) // a directory cannot be written to
		l.Refused(audit.Refusal{Reason: audit.Expired})
		l.Refused(audit.Refusal{Reason: 99}) // unknown reasons are malformed
		synctest.Wait()
		troubles := reported.all()
		if len(troubles) != 1 || troubles[0] == nil || !l.Failing() {
			t.Errorf("reported %v, failing %t; want one error", troubles, l.Failing())
		}
		remove(t, path)
		move(t, aside, path)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := events(t, path), "log.started auth.refused-more:2"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		troubles = reported.all()
		if len(troubles) != 2 || troubles[1] != nil || l.Failing() {
			t.Errorf("reported %v, failing %t; want an error and a final nil", troubles, l.Failing())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
