package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// CRD is one CustomResourceDefinition of the spec with the bytes that it was
// read from.
type CRD struct {
	// File is the path below spec/, with forward slashes.
	File string
	// YAML is the file as it stands.
	YAML []byte
	// Definition is the decoded file.
	Definition *apiextensionsv1.CustomResourceDefinition
}

// Kind is the kind that the CRD defines.
func (c CRD) Kind() string { return c.Definition.Spec.Names.Kind }

// Group is the API group of the kind.
func (c CRD) Group() string { return c.Definition.Spec.Group }

// GroupFolder is the first label of the group, which names its folder below
// generated/apis and in every package tree that is made from it.
func (c CRD) GroupFolder() string { return GroupFolder(c.Group()) }

// GroupFolder is the first DNS label of an API group.
func GroupFolder(group string) string {
	folder, _, _ := strings.Cut(group, ".")
	return folder
}

// CRDs reads every YAML file below spec/crds, strictly, and returns the
// definitions ordered by group and kind, so that the order of the files does
// not matter to any step.
func (w *Workspace) CRDs() ([]CRD, error) { return w.CRDsBelow("crds") }

// CRDsBelow is CRDs for another folder of the spec.
func (w *Workspace) CRDsBelow(folder string) ([]CRD, error) {
	var crds []CRD
	spec := os.DirFS(w.SpecDir)
	err := fs.WalkDir(spec, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || path.Ext(name) != ".yaml" {
			return nil
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("spec/%s is not a regular file", name)
		}
		data, err := fs.ReadFile(spec, name)
		if err != nil {
			return err
		}
		definition, err := decodeCRD(data)
		if err != nil {
			return fmt.Errorf("decoding spec/%s: %w", name, err)
		}
		crds = append(crds, CRD{File: name, YAML: data, Definition: definition})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the CRDs of spec/%s: %w", folder, err)
	}
	sort.Slice(crds, func(i, j int) bool {
		if crds[i].Group() != crds[j].Group() {
			return crds[i].Group() < crds[j].Group()
		}
		return crds[i].Kind() < crds[j].Kind()
	})
	for i := 1; i < len(crds); i++ {
		if crds[i].Group() == crds[i-1].Group() && crds[i].Kind() == crds[i-1].Kind() {
			return nil, fmt.Errorf("reading the CRDs of spec/%s: spec/%s and spec/%s both define %s.%s",
				folder, crds[i-1].File, crds[i].File, crds[i].Kind(), crds[i].Group())
		}
	}
	return crds, nil
}

func decodeCRD(data []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	first, err := documents.Read()
	if err != nil {
		return nil, fmt.Errorf("want one YAML document: %w", err)
	}
	if rest, err := documents.Read(); !errors.Is(err, io.EOF) && len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("want one YAML document, found several")
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(first, definition); err != nil {
		return nil, err
	}
	if definition.APIVersion != apiextensionsv1.SchemeGroupVersion.String() || definition.Kind != "CustomResourceDefinition" {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s, CustomResourceDefinition",
			definition.APIVersion, definition.Kind, apiextensionsv1.SchemeGroupVersion)
	}
	return definition, nil
}
