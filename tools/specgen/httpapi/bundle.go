package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/workspace"
)

const (
	// maxFile bounds what is read from one file of the spec.
	maxFile = 8 << 20
	// crdSchema is the only place in a CRD that a document may point to.
	crdSchema = "/spec/versions/0/schema/openAPIV3Schema"

	extGoType       = "x-go-type"
	extGoTypeImport = "x-go-type-import"
	extRole         = "x-required-role"
	extNoRevision   = "x-no-revision"
)

// bundle is one HTTP document with every reference resolved.
type bundle struct {
	// name is the part before .openapi.yaml.
	name string
	// file is the path of the document relative to the repository, for messages.
	file string
	doc  *openapi3.T
	// bound are the schema components that stand for existing Go types. They are
	// kept out of the document, which clients in other languages read as well.
	bound map[string]goType
	// operations in the order of path, then method.
	operations []operation
}

// source reads the files of the spec folder and nothing else. The loader sees
// them below the made-up root /spec.
type source struct{ root *os.Root }

func (s source) read(_ *openapi3.Loader, location *url.URL) ([]byte, error) {
	name, inside := strings.CutPrefix(path.Clean(location.Path), "/spec/")
	if location.Scheme != "" || location.Host != "" || !inside {
		return nil, fmt.Errorf("reference %q leaves the spec folder", location.String())
	}
	file, err := s.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("reading spec/%s: larger than %d bytes", name, maxFile)
	}
	return data, nil
}

// load bundles spec/http/<name>.openapi.yaml.
func load(ctx context.Context, specDir, name string) (*bundle, error) {
	b := &bundle{name: name, file: path.Join("spec/http", name+documentSuffix)}
	root, err := os.OpenRoot(specDir)
	if err != nil {
		return nil, fmt.Errorf("opening the spec folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	src := source{root: root}
	loader := openapi3.NewLoader()
	loader.Context = ctx
	loader.IsExternalRefsAllowed = true
	loader.ReadFromURIFunc = src.read
	b.doc, err = loader.LoadFromURI(&url.URL{Path: "/" + b.file})
	if err != nil {
		return nil, fmt.Errorf("bundling %s: %w", b.file, err)
	}
	// A security scheme has to be declared under the name that the document uses, so
	// the reference to the shared one is replaced by its content.
	if b.doc.Components != nil {
		for _, scheme := range b.doc.Components.SecuritySchemes {
			scheme.Ref = ""
		}
	}
	names := &namer{src: src, taken: map[string]string{}, bound: map[string]goType{}}
	for collection, components := range componentNames(b.doc) {
		for _, component := range components {
			names.taken[collection+"/"+component] = "/" + b.file + "#/components/" + collection + "/" + component
		}
	}
	b.doc.InternalizeRefs(ctx, names.resolve)
	if err := errors.Join(names.failures...); err != nil {
		return nil, fmt.Errorf("bundling %s: %w", b.file, err)
	}
	b.bound = names.goTypes(b.doc)
	closeRequestBodies(b.doc)
	b.operations = operations(b.doc)
	// Extensions beside fields are checked by lint; kin's own checks cover the
	// OpenAPI rules, including that every example satisfies its schema.
	if err := b.doc.Validate(ctx, openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("checking %s: %w", b.file, err)
	}
	return b, nil
}

// goType is a type of generated/apis that stands for a CRD.
type goType struct{ alias, importPath, name string }

// namer names the components that come from other files, and remembers which of
// them are custom resources.
type namer struct {
	src      source
	taken    map[string]string // collection/name -> where it came from
	bound    map[string]goType // schema component -> Go type
	failures []error
	seen     map[string]bool
}

// resolve is the openapi3.RefNameResolver; it has no error result, so failures are kept.
func (n *namer) resolve(_ *openapi3.T, ref openapi3.ComponentRef) string {
	location := ref.RefPath()
	from := location.Path + "#" + location.Fragment
	name, err := n.name(location, ref.CollectionName())
	if err == nil {
		key := ref.CollectionName() + "/" + name
		if other, clash := n.taken[key]; clash && other != from {
			err = fmt.Errorf("name %s is used by %s as well", name, strings.TrimPrefix(other, "/"))
		}
		n.taken[key] = from
	}
	if err != nil {
		if n.seen == nil {
			n.seen = map[string]bool{}
		}
		if !n.seen[from] {
			n.seen[from] = true
			n.failures = append(n.failures, fmt.Errorf("reference %q: %w", strings.TrimPrefix(from, "/"), err))
		}
		return "Unresolved"
	}
	return name
}

func (n *namer) name(location *url.URL, collection string) (string, error) {
	if name, found := strings.CutPrefix(location.Fragment, "/components/"+collection+"/"); found && !strings.Contains(name, "/") &&
		strings.HasPrefix(location.Path, "/spec/http/") {
		return name, nil
	}
	if !strings.HasPrefix(location.Path, "/spec/crds/") {
		return "", errors.New("only components of spec/http and schemas of spec/crds can be referenced")
	}
	if collection != "schemas" || location.Fragment != crdSchema {
		return "", fmt.Errorf("a CRD can only be referenced as a whole schema, by #%s", crdSchema)
	}
	target, err := n.crdType(location)
	if err != nil {
		return "", err
	}
	n.bound[target.name] = target
	return target.name, nil
}

var firstLabel = regexp.MustCompile(`^([a-z][a-z0-9]*)\.`)

// crdType tells which Go type stands for the first version of a CRD.
func (n *namer) crdType(location *url.URL) (goType, error) {
	data, err := n.src.read(nil, location)
	if err != nil {
		return goType{}, err
	}
	var crd struct {
		Kind string `json:"kind"`
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return goType{}, fmt.Errorf("parsing the CRD: %w", err)
	}
	label := firstLabel.FindStringSubmatch(crd.Spec.Group)
	if crd.Kind != "CustomResourceDefinition" || label == nil || len(crd.Spec.Versions) == 0 || crd.Spec.Names.Kind == "" {
		return goType{}, errors.New("the file is not a CustomResourceDefinition with group, kind and version")
	}
	version := crd.Spec.Versions[0].Name
	return goType{
		alias:      label[1] + version,
		importPath: path.Join(workspace.Module, "generated/apis", label[1], version),
		name:       crd.Spec.Names.Kind,
	}, nil
}

// goTypes are the existing Go types of the custom resources and of the schemas
// that all documents share, by component.
func (n *namer) goTypes(doc *openapi3.T) map[string]goType {
	if doc.Components == nil {
		return nil
	}
	types := map[string]goType{}
	for name := range doc.Components.Schemas {
		if target, found := n.bound[name]; found {
			types[name] = target
		} else if n.taken["schemas/"+name] == "/spec/http/"+conventionsFile+"#/components/schemas/"+name {
			types[name] = goType{alias: sharedPackage, importPath: sharedImport, name: name}
		}
	}
	return types
}

// bind makes oapi-codegen use existing Go types for components of doc.
func bind(doc *openapi3.T, types map[string]goType) {
	for name, target := range types {
		schema := doc.Components.Schemas[name].Value
		if schema.Extensions == nil {
			schema.Extensions = map[string]any{}
		}
		schema.Extensions[extGoType] = target.alias + "." + target.name
		schema.Extensions[extGoTypeImport] = map[string]any{"name": target.alias, "path": target.importPath}
	}
}

// componentNames lists the components that a document declares itself.
func componentNames(doc *openapi3.T) map[string][]string {
	names := map[string][]string{}
	if doc.Components == nil {
		return names
	}
	c := doc.Components
	names["schemas"] = keys(c.Schemas)
	names["parameters"] = keys(c.Parameters)
	names["headers"] = keys(c.Headers)
	names["requestBodies"] = keys(c.RequestBodies)
	names["responses"] = keys(c.Responses)
	names["securitySchemes"] = keys(c.SecuritySchemes)
	names["examples"] = keys(c.Examples)
	return names
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for key := range m {
		list = append(list, key)
	}
	return list
}

// closeRequestBodies refuses unknown keys: every object of a request body that
// has properties and says nothing about further keys gets additionalProperties: false.
func closeRequestBodies(doc *openapi3.T) {
	seen := map[*openapi3.Schema]bool{}
	var visit func(ref *openapi3.SchemaRef)
	visit = func(ref *openapi3.SchemaRef) {
		if ref == nil || ref.Value == nil || seen[ref.Value] {
			return
		}
		schema := ref.Value
		seen[schema] = true
		open, _ := schema.Extensions["x-kubernetes-preserve-unknown-fields"].(bool)
		if len(schema.Properties) > 0 && !open && len(schema.AllOf)+len(schema.AnyOf)+len(schema.OneOf) == 0 &&
			schema.AdditionalProperties.Has == nil && schema.AdditionalProperties.Schema == nil {
			closed := false
			schema.AdditionalProperties.Has = &closed
		}
		for _, property := range schema.Properties {
			visit(property)
		}
		visit(schema.Items)
		visit(schema.AdditionalProperties.Schema)
		for _, list := range []openapi3.SchemaRefs{schema.AllOf, schema.AnyOf, schema.OneOf} {
			for _, item := range list {
				visit(item)
			}
		}
	}
	for _, op := range operations(doc) {
		if op.RequestBody == nil || op.RequestBody.Value == nil {
			continue
		}
		for _, media := range op.RequestBody.Value.Content {
			visit(media.Schema)
		}
	}
}
