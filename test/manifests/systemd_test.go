package manifests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

const systemd = "../../deploy/systemd"

// directives returns the values of each directive of a section of the unit.
func directives(t *testing.T, section string) map[string][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(systemd, "leaderboard.service"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sections, err := unit.DeserializeSections(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, s := range sections {
		if s.Section != section {
			continue
		}
		for _, e := range s.Entries {
			found[e.Name] = append(found[e.Name], e.Value)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the unit has no section %s, want one", section)
	}
	return found
}

// confinement lists the directives that confine the process, with their values.
var confinement = map[string][]string{
	"AmbientCapabilities": {""}, "CapabilityBoundingSet": {""}, "KeyringMode": {"private"}, "LockPersonality": {"yes"},
	"MemoryDenyWriteExecute": {"yes"}, "NoNewPrivileges": {"yes"}, "PrivateDevices": {"yes"}, "PrivateIPC": {"yes"},
	"PrivateTmp": {"yes"}, "PrivateUsers": {"yes"}, "ProcSubset": {"pid"}, "ProtectClock": {"yes"}, "ProtectControlGroups": {"yes"},
	"ProtectHome": {"yes"}, "ProtectHostname": {"yes"}, "ProtectKernelLogs": {"yes"}, "ProtectKernelModules": {"yes"},
	"ProtectKernelTunables": {"yes"}, "ProtectProc": {"invisible"}, "ProtectSystem": {"strict"}, "RemoveIPC": {"yes"},
	"RestrictAddressFamilies": {"AF_INET AF_INET6 AF_UNIX"}, "RestrictNamespaces": {"yes"}, "RestrictRealtime": {"yes"},
	"RestrictSUIDSGID": {"yes"}, "SystemCallArchitectures": {"native"}, "SystemCallFilter": {"@system-service", "~@privileged"},
	"UMask": {"0077"}, "StateDirectory": {"leaderboard"}, "StateDirectoryMode": {"0700"}, "User": {"leaderboard"}, "Group": {"leaderboard"},
}

// systemd ignores a misspelled directive. So each directive of the unit must be in confinement or
// in this list.
var otherDirectives = []string{"Type", "Environment", "EnvironmentFile", "ExecStart", "ExecReload", "Restart", "RestartSec", "TimeoutStopSec", "LimitNOFILE"}

func TestUnitConfinesTheProcess(t *testing.T) {
	found := directives(t, "Service")
	for name, want := range confinement {
		if got, ok := found[name]; !ok || !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name := range found {
		if _, ok := confinement[name]; !ok && !slices.Contains(otherDirectives, name) {
			t.Errorf("directive %s is not in the lists of this test: correct its name, or add it to a list", name)
		}
	}
}

// The program knows the command and the settings of the unit. Its data is in the state directory,
// which is writable.
func TestSettingsOfTheUnit(t *testing.T) {
	found := directives(t, "Service")
	if len(found["ExecStart"]) != 1 {
		t.Fatalf("ExecStart is %q, want one command", found["ExecStart"])
	}
	args := strings.Fields(found["ExecStart"][0])
	if filepath.Base(args[0]) != "leaderboard" {
		t.Errorf("the unit runs %s, want leaderboard", args[0])
	}
	checkKnown(t, args[1:])
	file := filepath.Join(t.TempDir(), "leaderboard.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var environ []string
	for _, v := range found["Environment"] {
		if name, _, _ := strings.Cut(v, "="); name == "LEADERBOARD_CONFIG" {
			v = name + "=" + file
		}
		environ = append(environ, v)
	}
	s := load(t, environ)
	if state := "/var/lib/" + found["StateDirectory"][0]; filepath.Dir(s.Data) != state { // the command restore replaces the data folder, so this must be a folder inside state
		t.Errorf("the data is in %s, want a folder in %s", s.Data, state)
	}
	stop, err := time.ParseDuration(found["TimeoutStopSec"][0] + "s")
	if longest := s.DrainTime + max(s.ShutdownGrace, batchTime); err != nil || stop <= longest {
		t.Errorf("systemd kills the process after %v (%v), want more than the %v that a stop may take", stop, err, longest)
	}
}

// systemd rates the unit's exposure as at most 1.5 of 10.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	needs.Programs(t, "systemd-analyze")
	text, err := os.ReadFile(filepath.Join(systemd, "leaderboard.service"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "leaderboard.service")
	run := func(args ...string) (string, error) {
		out, err := exec.Command("systemd-analyze", append(args, file)...).CombinedOutput()
		return string(out), err
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	local := strings.ReplaceAll(string(text), "/usr/local/bin/leaderboard", leaderboard)
	write(local)
	if out, err := run("verify", "--man=no"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
	if out, err := run("security", "--offline=true", "--threshold=15"); err != nil {
		t.Errorf("systemd-analyze security: %v: %s", err, out)
	}
	write(strings.ReplaceAll(local, "NoNewPrivileges=", "NoNewPrivilege="))
	if out, _ := run("verify", "--man=no"); !strings.Contains(out, "NoNewPrivilege") {
		t.Errorf("systemd-analyze verify accepts a misspelled directive, want a warning: %s", out)
	}
	write(strings.ReplaceAll(local, "CapabilityBoundingSet=\n", ""))
	var exit *exec.ExitError
	if out, err := run("security", "--offline=true", "--threshold=15"); !errors.As(err, &exit) {
		t.Errorf("systemd-analyze security accepts a process with capabilities, want an error: %v: %s", err, out)
	}
}

// leaderboard.sysusers defines the unit's user, whose home is the folder with the unit's data.
func TestSystemdAcceptsTheUser(t *testing.T) {
	needs.Programs(t, "systemd-sysusers")
	text, err := os.ReadFile(filepath.Join(systemd, "leaderboard.sysusers"))
	if err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir() // a system without users
	if err := os.Mkdir(filepath.Join(empty, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	create := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "leaderboard.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-sysusers", "--dry-run", "--root="+empty, file).CombinedOutput()
		return string(out), err
	}
	found := directives(t, "Service")
	if out, err := create(string(text)); err != nil || !strings.Contains(out, "Creating user '"+found["User"][0]+"'") || !strings.Contains(out, "Creating group '"+found["Group"][0]+"'") {
		t.Errorf("systemd-sysusers: %v: %s; want the user and the group of the unit", err, out)
	}
	if home := "/var/lib/" + found["StateDirectory"][0]; !strings.HasSuffix(strings.TrimSpace(string(text)), " "+home) {
		t.Errorf("the user is %s, want the home %s", text, home)
	}
	if out, err := create(strings.Replace(string(text), "/var", "var", 1)); err == nil {
		t.Errorf("systemd-sysusers accepts a relative home, want an error: %s", out)
	}
}
