//go:build peers

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"magicstick.dev/operator/handwritten/kube"
)

// followWire looks at every version of the routes that Envoy Gateway sends to
// its proxies until the test ends: none may lead to an application without
// sending the request through the guard, and through sign-in where that is wanted.
func (e *edge) followWire() {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var problems []string
	versions, leading := 0, 0
	running.Go(func() {
		for ctx.Err() == nil {
			command := exec.CommandContext(ctx, e.binary, "snapshot", "--follow", "--address", "127.0.0.1:"+proxyPort,
				"--gateway", kube.GuardNamespace+"/"+gatewayName, "--proxy-certificates", filepath.Join(e.dir, "envoy"))
			output, err := command.StdoutPipe()
			if err == nil {
				err = command.Start()
			}
			if err != nil {
				problems = append(problems, err.Error())
				return
			}
			for decoder := json.NewDecoder(output); ; {
				w := &wire{}
				if decoder.Decode(w) != nil {
					break // Envoy Gateway or the test has ended
				}
				found, open := w.unguarded()
				problems = append(problems, found...)
				versions++
				leading += open
			}
			_ = command.Wait()
			time.Sleep(poll)
		}
	})
	e.t.Cleanup(func() {
		cancel()
		running.Wait()
		assert.Empty(e.t, problems, "no version of the routes led past the guard")
		assert.Greater(e.t, leading, 100, "enough of them led somewhere")
		e.t.Logf("the proxies were sent %d versions of the routes, in which routes of applications led somewhere %d times", versions, leading)
	})
}

// unguarded lists the routes of applications that lead somewhere without a
// guard of their own, and counts those that lead somewhere.
func (w *wire) unguarded() (problems []string, leading int) {
	for _, configuration := range w.Routes {
		for _, host := range configuration.VirtualHosts {
			for _, route := range host.Routes {
				if route.Route == nil || strings.HasPrefix(route.Name, "httproute/"+kube.GuardNamespace+"/redirect/") {
					continue
				}
				leading++
				wanted := map[string]bool{"ext_authz": true, "oauth2": true, "jwt_authn": true, "rbac": true}
				if strings.Contains(route.Name, "/odysseus-hall-") { // without sign-in
					wanted = map[string]bool{"ext_authz": true}
				}
				for name := range route.TypedPerFilterConfig {
					kind, _, _ := strings.Cut(strings.TrimPrefix(name, "envoy.filters.http."), "/")
					delete(wanted, kind)
				}
				if len(wanted) > 0 {
					problems = append(problems, fmt.Sprintf("%s passes by %v", route.Name, wanted))
				}
			}
		}
	}
	return problems, leading
}
