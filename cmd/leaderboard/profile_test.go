package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProfileCommands(t *testing.T) {
	deny := writeFile(t, "deny.txt", "*Moderator*\n")
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure", "--profiles-deny-list", deny)
	s.fails(t, exitFailure, []string{"profile not found"}, "profile", "get", "ada")
	s.ok(t, "profile", "set", "ada", "--name", "Ada 🚀", "--country", "GBR", "--attributes", `{"club":"red"}`)
	checkContains(t, s.ok(t, "profile", "set", "ada", "--avatar", "https://e.org/a.png"), "Ada 🚀", "https://e.org/a.png", "GBR", `{"club":"red"}`)
	s.ok(t, "profile", "set", "ada", "--country", "")
	p := parseObject(t, s.ok(t, "profile", "get", "ada", "--json"))
	delete(p, "updated_at")
	delete(p, "revision")
	want := map[string]any{"user_id": "ada", "display_name": "Ada 🚀", "avatar_url": "https://e.org/a.png", "attributes": map[string]any{"club": "red"}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("the profile (-want +got):\n%s", diff)
	}
	s.fails(t, exitUsage, []string{"nothing to set"}, "profile", "set", "ada")
	s.fails(t, exitUsage, []string{"--attributes"}, "profile", "set", "ada", "--attributes", "[1]")
	s.fails(t, exitFailure, []string{"country", "GBR"}, "profile", "set", "ada", "--country", "England")
	s.fails(t, exitFailure, []string{"display_name", "deny list"}, "profile", "set", "eve", "--name", "the módérator!")
	s.ok(t, "profile", "delete", "ada", "--reason", "asked", "--yes")
	s.fails(t, exitFailure, []string{"profile not found"}, "profile", "delete", "ada", "--yes")
	checkContains(t, s.ok(t, "audit", "--action", "profile"), "profile.delete", "asked")
}

// An export and a backup contain the profiles, and an import keeps newer ones.
func TestExportAndBackupContainProfiles(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	source := startServer(t, data, nil, "--insecure")
	for _, match := range []string{"m1", "m2"} {
		source.ok(t, "submit", "ada", "--points", "3", "--match", match)
	}
	source.ok(t, "submit", "bob", "--points", "3", "--match", "m1")
	source.ok(t, "profile", "set", "ada", "--name", "Ada", "--attributes", `{"club":"red"}`)
	file := filepath.Join(t.TempDir(), "results.ndjson")
	source.ok(t, "export", "results", "-o", file)
	target := startInsecure(t)
	target.ok(t, "import", file)
	profile := func(s *testServer, user string) map[string]any {
		p := parseObject(t, s.ok(t, "profile", "get", user, "--json"))
		delete(p, "updated_at") // of the import
		return p
	}
	if diff := cmp.Diff(profile(source, "ada"), profile(target, "ada")); diff != "" {
		t.Errorf("the profile after the import (-source +target):\n%s", diff)
	}
	target.fails(t, exitFailure, []string{"profile not found"}, "profile", "get", "bob")
	target.ok(t, "profile", "set", "ada", "--name", "newer")
	target.do(t, "import", file)
	if got := profile(target, "ada")["display_name"]; got != "newer" {
		t.Errorf("after another import of the file, the name is %v, want the newer one", got)
	}
	source.ok(t, "backup", "by-hand")
	source.ok(t, "profile", "delete", "ada", "--yes")
	source.stop()
	if r := command(t, "", nil, "restore", "--data", data, "by-hand", "--replace"); r.code != exitOK {
		t.Fatalf("restore: exit code %d: %s", r.code, r.stderr)
	}
	if got := profile(startServer(t, data, nil, "--insecure"), "ada")["display_name"]; got != "Ada" {
		t.Errorf("after the restore, the name is %v, want Ada", got)
	}
}
