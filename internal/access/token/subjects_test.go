package token_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMakeSubjects(t *testing.T) {
	many := make([]string, token.MaxSubjects+1)
	for i := range many {
		many[i] = fmt.Sprintf("P-%02d", i)
	}
	for _, tt := range []struct {
		subjects []string
		want     string
		ok       bool
	}{
		{nil, "", true},
		{[]string{"b", "a"}, "a,b", true},
		{[]string{strings.Repeat("a", 64)}, strings.Repeat("a", 64), true},
		{many[:token.MaxSubjects], strings.Join(many[:token.MaxSubjects], ","), true},
		{many, "", false},
		{[]string{strings.Repeat("a", 65)}, "", false},
		{[]string{""}, "", false},
		{[]string{"a", ""}, "", false},
		{[]string{"a", "a"}, "", false},
		{[]string{"a,b"}, "", false},
		{[]string{"a_b"}, "", false},
		{[]string{"a b"}, "", false},
	} {
		got, err := token.MakeSubjects(tt.subjects)
		if string(got) != tt.want || (err == nil) != tt.ok {
			t.Errorf("MakeSubjects(%q) = %q, %v", tt.subjects, got, err)
		}
		if tt.ok && len(tt.subjects) > 0 && !slices.Equal(got.List(), slices.Sorted(slices.Values(tt.subjects))) {
			t.Errorf("List() of %q = %q", got, got.List())
		}
	}
}

// TestBound checks what a token that is bound to subjects allows, and how it is written.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	now := time.Now()
	device, _ := vitals.ParseName("ppg-1")
	gateway, _ := vitals.ParseName("ehr")
	bound := token.Token{Gateway: gateway, Rights: token.Read, Subjects: "P-1,P-2"}
	text, _ := create(t, path, bound)
	plain, _ := create(t, path, token.Token{Gateway: gateway, Rights: token.Read})
	writes, _ := create(t, path, token.Token{Gateway: gateway, Rights: token.Write})
	for _, change := range []func(*token.Token){
		func(s *token.Token) { s.Rights = token.Write },
		func(s *token.Token) { s.Rights = token.Read | token.Write },
		func(s *token.Token) { s.Rights = token.Read | token.Admin },
		func(s *token.Token) { s.Devices = device },
		func(s *token.Token) { s.Subjects = "P-2,P-1" },
		func(s *token.Token) { s.Subjects = "P-1,P-1" },
		func(s *token.Token) { s.Subjects = "P 1" },
	} {
		spec := bound
		change(&spec)
		keeper := token.Keeper{Path: path}
		if _, err := keeper.Create(t.Context(), spec, now, nil); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("Create(%+v) returns %v, want ErrInvalid", spec, err)
		}
	}
	set, err := token.Open(path, token.Options{Every: -1})
	try(t, err)
	defer set.Close()
	for _, tt := range []struct {
		what, text               string
		read, subjects, of1, of3 bool
	}{
		{"bound", text, false, true, true, false},
		{"not bound", plain, true, true, true, true},
		{"without the read right", writes, false, false, true, true},
	} {
		a, err := find(set, "Bearer "+tt.text, now.UnixMilli())
		try(t, err)
		if a.Has(token.Read) != tt.read || a.Has(token.ReadSubjects) != tt.subjects || a.CoversSubject("P-1") != tt.of1 ||
			a.CoversSubject("P-3") != tt.of3 {
			t.Errorf("%s: reads %t, reads subjects %t, covers P-1 %t, P-3 %t", tt.what, a.Has(token.Read),
				a.Has(token.ReadSubjects), a.CoversSubject("P-1"), a.CoversSubject("P-3"))
		}
		if bound := tt.what == "bound"; a.Bound() != bound || a.Covers(&device) == bound || a.CoversAll() == bound {
			t.Errorf("%s: bound %t, covers a device %t, all %t", tt.what, a.Bound(), a.Covers(&device), a.CoversAll())
		}
	}
	if (*token.Principal)(nil).CoversSubject("P-1") {
		t.Error("the nil Principal covers a subject")
	}
}
