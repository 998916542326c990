package kube

import (
	"net/url"
	"strings"
)

// Where the gateway asks whether a request may pass (contract/appliance.md
// C.4 (5)). The policies of instances name this Service; cmd/admin serves it.
const (
	// GuardService is the Service of the guard, in the namespace of the gateway's routes.
	GuardService = "magicstick-admin"
	// GuardNamespace is where the guard, the gateway and its routes live in a
	// standard installation.
	GuardNamespace = "identity-system"
	// GuardPort is the port of GuardService that answers check requests. It
	// serves nothing else, so that it need not be reachable from outside.
	GuardPort = 8090
	// GuardPathPrefix starts the path of every check request.
	GuardPathPrefix = "/guard"
)

// GuardRequest is what a policy tells the guard about the route it stands on.
// It is part of the policy, so a caller cannot change it.
type GuardRequest struct {
	// Namespace and Instance name the AppInstance.
	Namespace, Instance string
	// Authentication is spec.access.authentication as it was when the policy
	// was rendered. The guard denies when the instance says something else by now.
	Authentication string
}

// Path is the whole path of the check request,
// /guard/<namespace>/<instance>/<authentication>. It replaces the path of the
// caller's request, so that nothing a caller writes there, however long or
// oddly escaped, can make a check fail that should pass.
func (g GuardRequest) Path() string {
	return GuardPathPrefix + "/" + url.PathEscape(g.Namespace) + "/" + url.PathEscape(g.Instance) + "/" + url.PathEscape(g.Authentication)
}

// ParseGuardPath reads a GuardRequest from the escaped path of a check request
// ((*url.URL).EscapedPath, not Path, and not behind a ServeMux, which cleans
// paths). A gateway that appends the path of the caller is understood too: what
// follows the three parts is not looked at.
func ParseGuardPath(escapedPath string) (GuardRequest, bool) {
	rest, found := strings.CutPrefix(escapedPath, GuardPathPrefix+"/")
	if !found {
		return GuardRequest{}, false
	}
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) < 3 {
		return GuardRequest{}, false
	}
	for i, part := range parts[:3] {
		text, err := url.PathUnescape(part)
		if err != nil || text == "" {
			return GuardRequest{}, false
		}
		parts[i] = text
	}
	return GuardRequest{Namespace: parts[0], Instance: parts[1], Authentication: parts[2]}, true
}
