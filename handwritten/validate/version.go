package validate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Version is set by the linker for a release:
//
//	-ldflags "-X magicstick.dev/operator/handwritten/validate.Version=v1.2.3"
//
// Without it the version of the module or of the commit is used.
var Version string

// BuildInfo says which program this is.
type BuildInfo struct {
	// Version is the release, or the version of the module as Go knows it.
	Version string `json:"version"`
	// Commit is the source revision; empty when it was not recorded.
	Commit string `json:"commit,omitempty"`
	// Date is the time of the commit in RFC 3339; empty when it was not recorded.
	Date string `json:"date,omitempty"`
	// Modified tells that the source differed from the commit.
	Modified bool `json:"modified,omitempty"`
	// Go is the version of the compiler.
	Go string `json:"go"`
	// Platform is operating system and architecture.
	Platform string `json:"platform"`
}

// ReadBuildInfo reads what the linker and the compiler recorded.
func ReadBuildInfo() BuildInfo {
	info := BuildInfo{Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build, found := debug.ReadBuildInfo(); found {
		info.Version = cmp.Or(info.Version, build.Main.Version)
		for _, setting := range build.Settings {
			switch setting.Key {
			case "vcs.revision":
				info.Commit = setting.Value
			case "vcs.time":
				info.Date = setting.Value
			case "vcs.modified":
				info.Modified = setting.Value == "true"
			}
		}
	}
	info.Version = cmp.Or(info.Version, "devel")
	return info
}

// WriteText writes the information on one line.
func (b BuildInfo) WriteText(w io.Writer) error {
	commit := ""
	if b.Commit != "" {
		commit = ", commit " + b.Commit
		if b.Modified {
			commit += " (modified)"
		}
	}
	_, err := fmt.Fprintf(w, "magicstick %s (%s, %s%s)\n", b.Version, b.Platform, b.Go, commit)
	return err
}

// WriteJSON writes the information as one JSON object.
func (b BuildInfo) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}
