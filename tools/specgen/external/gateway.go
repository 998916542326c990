package external

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/gengo/v2/types"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/workspace"
)

const (
	gatewayTypes = "sigs.k8s.io/gateway-api/apis/v1"
	gatewayApply = "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	envoyTypes   = "github.com/envoyproxy/gateway/api/v1alpha1"
)

// gatewayCRDs are the files of the two modules that define what instances use:
// routes and grants, the gateway that they hang on, and the policies on them.
// Both modules ship their CRDs as plain YAML beside the Go types.
var gatewayCRDs = []struct {
	types  string // a package of the module
	folder string // below the module's root
	files  []string
}{
	{gatewayTypes, "config/crd/standard", []string{
		"gateway.networking.k8s.io_gatewayclasses.yaml",
		"gateway.networking.k8s.io_gateways.yaml",
		"gateway.networking.k8s.io_httproutes.yaml",
		"gateway.networking.k8s.io_referencegrants.yaml",
	}},
	{envoyTypes, "charts/gateway-helm/charts/crds/crds/generated", []string{
		"gateway.envoyproxy.io_securitypolicies.yaml",
	}},
}

// gatewayShared are the types of Gateway API inside Envoy Gateway's kinds.
// Gateway API has apply configurations of its own.
var gatewayShared = []string{
	"BackendObjectReference", "LocalObjectReference", "LocalPolicyTargetReference",
	"LocalPolicyTargetReferenceWithSectionName", "ParentReference", "PolicyStatus", "SecretObjectReference",
}

// Gateway writes generated/external/gateway/crds, the CRDs of Gateway API and
// Envoy Gateway, and generated/external/envoy, the apply configurations of
// Envoy Gateway's SecurityPolicy.
func Gateway(ctx context.Context, ws *workspace.Workspace) error {
	crds, err := shippedGatewayCRDs(ws.ModuleDir)
	if err != nil {
		return err
	}
	doc := `Package crds carries the CustomResourceDefinitions of Gateway API and of Envoy
Gateway that instances need, as the modules that go.mod names ship them. Tests
and "magicstick dev" install them.`
	if err := codegen.WriteCRDPackage(ctx, ws, "external/gateway/crds", doc, crds); err != nil {
		return err
	}
	return envoyApplyConfigurations(ctx, ws, crds)
}

func shippedGatewayCRDs(moduleDir string) ([]workspace.CRD, error) {
	var crds []workspace.CRD
	for _, source := range gatewayCRDs {
		root, err := moduleRoot(moduleDir, source.types)
		if err != nil {
			return nil, err
		}
		for _, file := range source.files {
			data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(source.folder), file))
			if err != nil {
				return nil, fmt.Errorf("reading a CRD of %s: %w", source.types, err)
			}
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(data, definition); err != nil {
				return nil, fmt.Errorf("reading the CRD %s of %s: %w", file, source.types, err)
			}
			if definition.Spec.Names.Kind == "" {
				return nil, fmt.Errorf("reading the CRD %s of %s: it defines no kind", file, source.types)
			}
			header := strings.ReplaceAll(workspace.Header, "//", "#")
			text := append([]byte(header), bytes.TrimPrefix(data, []byte("---\n"))...)
			crds = append(crds, workspace.CRD{File: file, YAML: text, Definition: definition})
		}
	}
	sort.Slice(crds, func(i, j int) bool {
		return crds[i].Group()+"/"+crds[i].Kind() < crds[j].Group()+"/"+crds[j].Kind()
	})
	return crds, nil
}

// moduleRoot is the folder of the module that has the package.
func moduleRoot(moduleDir, importPath string) (string, error) {
	config := &packages.Config{Mode: packages.NeedName | packages.NeedModule, Dir: moduleDir, Env: append(os.Environ(), codegen.LoadFlags)}
	found, err := packages.Load(config, importPath)
	if err != nil {
		return "", fmt.Errorf("finding the module of %s: %w", importPath, err)
	}
	if len(found) != 1 || found[0].Module == nil || found[0].Module.Dir == "" {
		return "", fmt.Errorf("finding the module of %s: go.mod does not name it", importPath)
	}
	return found[0].Module.Dir, nil
}

func envoyApplyConfigurations(ctx context.Context, ws *workspace.Workspace, crds []workspace.CRD) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	universe, err := codegen.Load(ws.ModuleDir, envoyTypes)
	if err != nil {
		return err
	}
	var schemas []codegen.Schema
	for _, definition := range crds {
		if definition.Kind() == "SecurityPolicy" {
			schemas = append(schemas, codegen.Schema{Definition: definition.Definition, Version: "v1alpha1", Package: envoyTypes})
		}
	}
	openAPI := filepath.Join(ws.ModuleDir, "openapi-envoy.json")
	if err := codegen.WriteOpenAPI(openAPI, schemas); err != nil {
		return err
	}
	defer func() { _ = os.Remove(openAPI) }()
	shared := map[types.Name]string{}
	for _, name := range gatewayShared {
		shared[types.Name{Package: gatewayTypes, Name: name}] = gatewayApply
	}
	const name = "external/envoy/applyconfiguration"
	out := codegen.Output{Dir: filepath.Join(ws.GeneratedDir(), filepath.FromSlash(name)), Package: workspace.Module + "/generated/" + name}
	if err := universe.ApplyConfigurations(out, openAPI, shared); err != nil {
		return fmt.Errorf("generating the apply configurations of %s: %w", envoyTypes, err)
	}
	// utils.go serves fake clientsets, which are not made here.
	if err := os.Remove(filepath.Join(out.Dir, "utils.go")); err != nil {
		return fmt.Errorf("generating the apply configurations of %s: %w", envoyTypes, err)
	}
	if err := keepReachable(filepath.Join(out.Dir, "api", "v1alpha1"), "SecurityPolicyApplyConfiguration"); err != nil {
		return fmt.Errorf("generating the apply configurations of %s: %w", envoyTypes, err)
	}
	return codegen.NameGenerator(out.Dir)
}
