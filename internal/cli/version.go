package cli

import (
	"runtime"
	"runtime/debug"
)

// The linker sets release in release builds.
var release string

// Version describes the commit of a binary and the Go toolchain.
type Version struct {
	// Version is the release, or else the module's version, or "devel".
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit hash
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified"`           // has uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadVersion returns the version of this binary.
func ReadVersion() Version {
	info, _ := debug.ReadBuildInfo()
	v := versionOf(info)
	if release != "" {
		v.Version = release
	}
	return v
}

func versionOf(info *debug.BuildInfo) Version {
	v := Version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	if main := info.Main.Version; main != "" && main != "(devel)" {
		v.Version = main
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
