package profile_test

import (
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct{ name, pkg, base, short string }{
		{"runtime.mallocgc", "runtime", "mallocgc", "runtime.mallocgc"},
		{"net/http.(*conn).serve", "net/http", "(*conn).serve", "net/http.(*conn).serve"},
		{module + "internal/api/ingest.(*Job).Decode", module + "internal/api/ingest", "(*Job).Decode", "internal/api/ingest.(*Job).Decode"},
		{module + "internal/storage/groupcommit.(*Committer[go.shape.*a.b/c.T[d/e.U]]).Commit.func1", module + "internal/storage/groupcommit",
			"(*Committer[go.shape.*a.b/c.T[d/e.U]]).Commit.func1", "internal/storage/groupcommit.(*Committer[…]).Commit.func1"},
		{"github.com/cockroachdb/pebble/v2.(*DB).Apply", "github.com/cockroachdb/pebble/v2", "(*DB).Apply", "pebble/v2.(*DB).Apply"},
		{"gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml.v3", "Unmarshal", "yaml.v3.Unmarshal"},
		{"main.main.func1", "main", "main.func1", "main.main.func1"},
		{"aeshashbody", "", "aeshashbody", "aeshashbody"},
		{"", "", "", ""},
	} {
		pkg, base, short := pg.Names(tt.name)
		if pkg != tt.pkg || base != tt.base || short != tt.short {
			t.Errorf("%s: got %q, %q, %q, want %q, %q, %q", tt.name, pkg, base, short, tt.pkg, tt.base, tt.short)
		}
	}
}
