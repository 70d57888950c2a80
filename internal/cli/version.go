package cli

import (
	"runtime"
	"runtime/debug"
)

// The linker sets release in release builds.
var release string

// Version describes the commit from which a binary was built, and the Go toolchain.
type Version struct {
	// Version is the release, or else the module's version: a tag, or a pseudo-version with
	// the time and the hash of the commit. It is "devel" if the build recorded none.
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit hash
	Time     string `json:"time,omitempty"`     // of the commit, in RFC 3339
	Modified bool   `json:"modified"`           // the build contains uncommitted changes
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

// versionOf returns the version in info, which may be nil.
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
