// Command lint is golangci-lint with the linter for Kubernetes APIs built in. It
// is a module of its own, so that a linter's dependencies never become ours.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter" // registers the linter kubeapilinter
)

const linter = "github.com/golangci/golangci-lint/v2"

func main() {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "unknown"}
	if build, found := debug.ReadBuildInfo(); found {
		info.GoVersion = build.GoVersion
		for _, module := range build.Deps {
			if module.Path == linter {
				info.Version = module.Version
			}
		}
	}
	if err := commands.Execute(info); err != nil {
		fmt.Fprintf(os.Stderr, "lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}
