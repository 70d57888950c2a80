package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionComesFromTheBuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	const revision, at = "b29701088502c0ffee00b29701088502c0ffee00", "2026-11-22T00:54:15Z"
	tests := []struct {
		name string
		info *debug.BuildInfo
		want Version
	}{
		{"no build information", nil, Version{Version: "devel"}},
		{"go run, which records no version", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Version{Version: "devel"}},
		{"a test binary", &debug.BuildInfo{}, Version{Version: "devel"}},
		{"go install of a tag", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, Version{Version: "v1.2.3"}},
		{
			"a build in a clone",
			&debug.BuildInfo{
				Main:     debug.Module{Version: "v0.0.0-20261122005415-b29701088502"},
				Settings: []debug.BuildSetting{setting("vcs", "git"), setting("vcs.revision", revision), setting("vcs.time", at), setting("vcs.modified", "false")},
			},
			Version{Version: "v0.0.0-20261122005415-b29701088502", Revision: revision, Time: at},
		},
		{
			"a build with uncommitted changes",
			&debug.BuildInfo{
				Main:     debug.Module{Version: "v1.2.4-0.20261122005415-b29701088502+dirty"},
				Settings: []debug.BuildSetting{setting("vcs.revision", revision), setting("vcs.modified", "true")},
			},
			Version{Version: "v1.2.4-0.20261122005415-b29701088502+dirty", Revision: revision, Modified: true},
		},
	}
	for _, tt := range tests {
		tt.want.Go, tt.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
		if got := versionOf(tt.info); got != tt.want {
			t.Errorf("%s: version = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
