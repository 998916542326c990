package identity

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// maxTarget bounds the request target in bytes. Envoy accepts request headers up
// to 60 KiB in all.
const maxTarget = 32 << 10

// Question is what the path of a check asks.
type Question struct {
	// Namespace and Name of the AppInstance.
	Namespace, Name string
	// Authentication is the mode that the policy was rendered for.
	Authentication appliancev1alpha1.AppInstanceSpecAccessAuthentication
}

// ParseTarget reads a check's request target as it stood on the request line
// (http.Request.RequestURI), before anything was decoded or cleaned. The first
// part comes from the policy; what may follow is the path and query of the
// caller's request, which decides nothing.
//
// The names are accepted only as the policy writes them: no escapes, no empty
// or dot segments, no other case. A caller's part with a dot segment in any
// spelling is refused too: a hop in between that cleaned it would have asked
// about another instance, and the gateway cleans paths before it asks.
func ParseTarget(target string) (Question, bool) {
	if len(target) > maxTarget {
		return Question{}, false
	}
	path, _, _ := strings.Cut(target, "?")
	request, understood := kube.ParseGuardPath(path)
	if !understood {
		return Question{}, false
	}
	rest, verbatim := strings.CutPrefix(path, request.Path())
	if !verbatim || rest != "" && rest[0] != '/' {
		return Question{}, false
	}
	if len(validation.IsDNS1123Label(request.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(request.Instance)) > 0 {
		return Question{}, false
	}
	mode := appliancev1alpha1.AppInstanceSpecAccessAuthentication(request.Authentication)
	if mode != authenticationSSO && mode != authenticationNone {
		return Question{}, false
	}
	if hasDotSegment(rest) {
		return Question{}, false
	}
	return Question{Namespace: request.Namespace, Name: request.Instance, Authentication: mode}, true
}

// unescapeOnce spells the characters that make up dot segments as themselves.
var unescapeOnce = strings.NewReplacer("%2e", ".", "%2E", ".", "%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", `\`, "/", "%25", "%")

// hasDotSegment reports whether a segment is "." or "..", also when it is
// escaped, escaped twice, or set apart by backslashes.
func hasDotSegment(path string) bool {
	for range 3 {
		for segment := range strings.SplitSeq(path, "/") {
			// Some servers cut path parameters off before they resolve dots.
			segment, _, _ = strings.Cut(segment, ";")
			if segment == "." || segment == ".." {
				return true
			}
		}
		plain := unescapeOnce.Replace(path)
		if plain == path {
			return false
		}
		path = plain
	}
	return false
}
