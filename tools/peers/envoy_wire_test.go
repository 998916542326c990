//go:build peers

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"magicstick.dev/operator/handwritten/kube"
)

// wire is the part of an Envoy proxy's configuration that we look at, as Envoy
// Gateway sends it.
type wire struct {
	Listeners []struct {
		Name               string
		FilterChains       []filterChain `json:"filter_chains"`
		DefaultFilterChain filterChain   `json:"default_filter_chain"`
	}
	Routes []struct {
		VirtualHosts []struct {
			Domains []string
			Routes  []wireRoute
		} `json:"virtual_hosts"`
	}
}

type filterChain struct {
	Filters []struct {
		TypedConfig struct {
			HTTPFilters []httpFilter `json:"http_filters"`
		} `json:"typed_config"`
	}
}

type httpFilter struct {
	Name        string
	Disabled    bool
	TypedConfig struct {
		FailureModeAllow bool   `json:"failure_mode_allow"`
		StatusOnError    any    `json:"status_on_error"`
		HTTPService      *check `json:"http_service"`
	} `json:"typed_config"`
}

// check is how the guard is asked.
type check struct {
	ServerURI struct {
		URI, Cluster string
	} `json:"server_uri"`
	// PathOverride replaces the path of the request.
	PathOverride string `json:"path_override"`
}

type wireRoute struct {
	Name  string
	Match struct {
		Prefix, Path string
	}
	Route *struct {
		Cluster string
		Timeout string
	}
	DirectResponse *struct {
		Status int
	} `json:"direct_response"`
	RequestHeadersToRemove []string                   `json:"request_headers_to_remove"`
	TypedPerFilterConfig   map[string]json.RawMessage `json:"typed_per_filter_config"`

	domains []string
}

// wire asks Envoy Gateway for the configuration of the Gateway, as a proxy does.
func (e *edge) wire(ctx context.Context) (*wire, error) {
	command := exec.CommandContext(ctx, e.binary, "snapshot", "--address", "127.0.0.1:"+proxyPort,
		"--gateway", kube.GuardNamespace+"/"+gatewayName, "--proxy-certificates", filepath.Join(e.dir, "envoy"))
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &complaint)
	}
	found := &wire{}
	return found, json.Unmarshal(output, found)
}

// filters are the HTTP filters of the listener with TLS, in the order in which a
// request meets them.
func (w *wire) filters() ([]httpFilter, error) {
	for _, listener := range w.Listeners {
		if listener.Name != kube.GuardNamespace+"/"+gatewayName+"/https" {
			continue
		}
		for _, chain := range append(listener.FilterChains, listener.DefaultFilterChain) {
			for _, filter := range chain.Filters {
				if len(filter.TypedConfig.HTTPFilters) > 0 {
					return filter.TypedConfig.HTTPFilters, nil
				}
			}
		}
	}
	return nil, errors.New("there is no listener with TLS")
}

// route is what an HTTPRoute became.
func (w *wire) route(name string) (*wireRoute, error) {
	for _, configuration := range w.Routes {
		for _, host := range configuration.VirtualHosts {
			for i := range host.Routes {
				route := &host.Routes[i]
				if strings.HasPrefix(route.Name, "httproute/"+kube.GuardNamespace+"/"+name+"/") {
					route.domains = host.Domains
					return route, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("the proxies know no route %s", name)
}

// chain are the filters that act on a route, by their kinds, in order.
func (w *wire) chain(route *wireRoute) ([]string, error) {
	filters, err := w.filters()
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, filter := range filters {
		if _, own := route.TypedPerFilterConfig[filter.Name]; !own && (filter.Disabled || !strings.Contains(filter.Name, "router")) {
			continue // without a configuration of the route's own these filters do nothing
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(filter.Name, "envoy.filters.http."), "/")
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// guard is the question to the guard that a route asks; it is an error when a
// failure of the guard would let requests pass.
func (w *wire) guard(route *wireRoute) (*check, error) {
	filters, err := w.filters()
	if err != nil {
		return nil, err
	}
	for _, filter := range filters {
		raw, own := route.TypedPerFilterConfig[filter.Name]
		if !own || !strings.HasPrefix(filter.Name, "envoy.filters.http.ext_authz") {
			continue
		}
		var override struct {
			Disabled bool
		}
		if err := json.Unmarshal(raw, &override); err != nil {
			return nil, err
		}
		switch {
		case override.Disabled:
			return nil, fmt.Errorf("%s is switched off for %s", filter.Name, route.Name)
		case filter.TypedConfig.FailureModeAllow:
			return nil, fmt.Errorf("%s lets requests pass when the guard fails", filter.Name)
		case filter.TypedConfig.HTTPService == nil:
			return nil, fmt.Errorf("%s asks nobody over HTTP", filter.Name)
		}
		return filter.TypedConfig.HTTPService, nil
	}
	return nil, fmt.Errorf("%s asks no guard", route.Name)
}
