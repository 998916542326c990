package fetch

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// maxRedirects bounds a chain of redirects (contract/models.md C.3).
const maxRedirects = 5

// isRedirect tells the statuses that lead somewhere else.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// sameOrigin tells whether credentials for one URL may be sent to the other.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(hostPort(a), hostPort(b))
}

// allowed refuses a URL that must not be asked.
func (c *Client) allowed(u *url.URL) error {
	refuse := func(rule string) error {
		return source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrBlocked, "asking %s: %s", Name(u), rule)
	}
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !c.options.PlainHTTP):
		return refuse("only https is allowed")
	case u.User != nil:
		return refuse("a URL with a user is not allowed")
	case !c.knows(u):
		return refuse("the host is none of this source")
	}
	return nil
}

// knows looks a host up in the allow-list. An entry with a port allows exactly
// that, one without a port the default one; a leading dot allows the names below.
func (c *Client) knows(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	byDefault := u.Port() == "" || u.Port() == "443" && u.Scheme == "https"
	return slices.ContainsFunc(c.options.Hosts, func(entry string) bool {
		if strings.HasPrefix(entry, ".") {
			return byDefault && strings.HasSuffix(host, entry)
		}
		return byDefault && host == entry || strings.EqualFold(hostPort(u), entry)
	})
}

// target is where a redirect leads.
func (c *Client) target(from *url.URL, answer *http.Response) (*url.URL, error) {
	location := answer.Header.Get("Location")
	if location == "" {
		return nil, source.Interrupted(nil, "asking %s: it redirects to nowhere", Name(from))
	}
	to, err := from.Parse(location)
	if err != nil {
		return nil, source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking %s: it redirects to what is no URL", Name(from))
	}
	to.Fragment = ""
	if err := c.allowed(to); err != nil {
		return nil, source.Fail(source.Reason(err), err, "following the redirect of %s", Name(from))
	}
	return to, nil
}

// Name is a URL for people: scheme, host and path, without user, query and fragment.
func Name(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
