package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const typePrefix = "type.googleapis.com/envoy.config."

// snapshotCommand asks like an Envoy proxy does, over the same port and with the
// same certificates, and prints the answer.
func snapshotCommand() *cobra.Command {
	var address, gateway, dir string
	var timeout time.Duration
	var keep bool
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Print the listeners, routes and clusters of a Gateway as JSON",
		RunE: func(command *cobra.Command, _ []string) error {
			command.SilenceUsage = true
			ctx, cancel := context.WithCancel(command.Context())
			defer cancel()
			if !keep {
				defer time.AfterFunc(timeout, cancel).Stop()
			}
			output := json.NewEncoder(command.OutOrStdout())
			asker, err := connect(ctx, address, gateway, dir)
			if err == nil && keep {
				err = asker.follow(output)
			} else if err == nil {
				err = asker.snapshot(output)
			}
			if err != nil {
				return fmt.Errorf("asking %s for the configuration of %s: %w", address, gateway, err)
			}
			return nil
		},
	}
	command.Flags().StringVar(&address, "address", "127.0.0.1:18000", "where Envoy Gateway serves its proxies")
	command.Flags().StringVar(&gateway, "gateway", "", "namespace/name of the Gateway")
	command.Flags().StringVar(&dir, "proxy-certificates", "", "folder with ca.crt, tls.crt and tls.key of a proxy")
	command.Flags().BoolVar(&keep, "follow", false, "print every version of the routes, a line each, until the connection ends")
	command.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for an answer")
	return command
}

// configuration is what a proxy gets.
type configuration struct {
	Listeners []json.RawMessage `json:"listeners"`
	Routes    []json.RawMessage `json:"routes"`
	Clusters  []json.RawMessage `json:"clusters"`
}

// connect opens the stream that a proxy gets everything over.
func connect(ctx context.Context, address, gateway, dir string) (*proxy, error) {
	transport, err := proxyCredentials(dir)
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = connection.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	return &proxy{stream: stream, node: &corev3.Node{Id: fmt.Sprintf("snapshot-%d", os.Getpid()), Cluster: gateway}}, nil
}

// proxy is one Envoy proxy as Envoy Gateway sees it.
type proxy struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node   *corev3.Node
	last   *discoveryv3.DiscoveryRequest
}

func (p *proxy) snapshot(output *json.Encoder) error {
	var answer configuration
	clusters, err := p.fetch("cluster.v3.Cluster", nil)
	if err != nil {
		return err
	}
	for _, resource := range clusters {
		if err := appendJSON(&answer.Clusters, resource, &clusterv3.Cluster{}); err != nil {
			return err
		}
	}
	names, err := p.listeners(&answer)
	if err != nil {
		return err
	}
	routes, err := p.fetch("route.v3.RouteConfiguration", names)
	if err != nil {
		return err
	}
	for _, resource := range routes {
		if err := appendJSON(&answer.Routes, resource, &routev3.RouteConfiguration{}); err != nil {
			return err
		}
	}
	return output.Encode(&answer)
}

// follow prints the routes whenever Envoy Gateway sends them.
func (p *proxy) follow(output *json.Encoder) error {
	names, err := p.listeners(&configuration{})
	if err != nil {
		return err
	}
	for {
		routes, err := p.fetch("route.v3.RouteConfiguration", names)
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unavailable {
			return nil // Envoy Gateway has ended
		}
		if err != nil {
			return err
		}
		var answer configuration
		for _, resource := range routes {
			if err := appendJSON(&answer.Routes, resource, &routev3.RouteConfiguration{}); err != nil {
				return err
			}
		}
		if err := output.Encode(&answer); err != nil {
			return err
		}
	}
}

// listeners adds the listeners to the answer and returns the names of the
// route configurations that they use.
func (p *proxy) listeners(answer *configuration) ([]string, error) {
	listeners, err := p.fetch("listener.v3.Listener", nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range listeners {
		var listener listenerv3.Listener
		if err := appendJSON(&answer.Listeners, resource, &listener); err != nil {
			return nil, err
		}
		names = append(names, routeNames(&listener)...)
	}
	return names, nil
}

// fetch asks for resources of a type and returns the next answer. Asking again
// acknowledges the answer before and waits for a change, as Envoy does.
func (p *proxy) fetch(kind string, names []string) ([]*anypb.Any, error) {
	request := p.last
	if request == nil || request.GetTypeUrl() != typePrefix+kind {
		request = &discoveryv3.DiscoveryRequest{Node: p.node, TypeUrl: typePrefix + kind, ResourceNames: names}
	}
	if err := p.stream.Send(request); err != nil {
		return nil, fmt.Errorf("asking for %s: %w", kind, err)
	}
	for {
		response, err := p.stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("waiting for %s: %w", kind, err)
		}
		if response.GetTypeUrl() != request.GetTypeUrl() {
			continue // a change of something that was asked for earlier
		}
		request.VersionInfo, request.ResponseNonce = response.GetVersionInfo(), response.GetNonce()
		p.last = request
		return response.GetResources(), nil
	}
}

func proxyCredentials(dir string) (credentials.TransportCredentials, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: pool, ServerName: "envoy-gateway", MinVersion: tls.VersionTLS13,
	}), nil
}

// routeNames are the route configurations that the filter chains of a listener name.
func routeNames(listener *listenerv3.Listener) []string {
	var names []string
	for _, chain := range append(listener.GetFilterChains(), listener.GetDefaultFilterChain()) {
		for _, filter := range chain.GetFilters() {
			var manager hcmv3.HttpConnectionManager
			if filter.GetTypedConfig().MessageIs(&manager) && filter.GetTypedConfig().UnmarshalTo(&manager) == nil {
				names = append(names, manager.GetRds().GetRouteConfigName())
			}
		}
	}
	return names
}

func appendJSON(list *[]json.RawMessage, resource *anypb.Any, into proto.Message) error {
	if err := resource.UnmarshalTo(into); err != nil {
		return err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(into)
	if err != nil {
		return err
	}
	*list = append(*list, raw)
	return nil
}
