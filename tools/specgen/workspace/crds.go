package workspace

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/tools/specgen/crd"
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

// CRDs returns the definitions of spec/crds, ordered by group and kind, so that
// the order of the files does not matter to any step.
func (w *Workspace) CRDs() ([]CRD, error) { return w.CRDsBelow("crds") }

// CRDsBelow is CRDs for another folder of the spec.
func (w *Workspace) CRDsBelow(folder string) ([]CRD, error) {
	definitions, err := w.Definitions(folder)
	if err != nil {
		return nil, err
	}
	crds := make([]CRD, 0, len(definitions))
	for _, d := range definitions {
		crds = append(crds, CRD{File: strings.TrimPrefix(d.File, "spec/"), YAML: d.Text, Definition: d.CRD})
	}
	return crds, nil
}

// loaded is what reading one folder of the spec gave.
type loaded struct {
	once        sync.Once
	definitions []*crd.Definition
	err         error
}

// Definitions reads every CRD below a folder of the spec, ordered by group and
// kind. A folder is read once in a run, so that every step sees the same files
// and a fault in them is told in the same words; each caller gets its own copy.
// Errors name the files as they lie in the repository. A folder that does not
// exist gives an error that matches fs.ErrNotExist.
func (w *Workspace) Definitions(folder string) ([]*crd.Definition, error) {
	dir := filepath.Join(w.SpecDir, filepath.FromSlash(folder))
	kept, _ := w.read.LoadOrStore(dir, &loaded{})
	read := kept.(*loaded)
	read.once.Do(func() {
		read.definitions, read.err = crd.LoadDirAs(dir, path.Join("spec", folder))
		slices.SortFunc(read.definitions, func(a, b *crd.Definition) int {
			return strings.Compare(kindKey(a.CRD), kindKey(b.CRD))
		})
	})
	if read.err != nil {
		return nil, fmt.Errorf("reading the CRDs of spec/%s: %w", folder, read.err)
	}
	copies := make([]*crd.Definition, 0, len(read.definitions))
	for _, definition := range read.definitions {
		copies = append(copies, definition.Copy())
	}
	return copies, nil
}

func kindKey(definition *apiextensionsv1.CustomResourceDefinition) string {
	return definition.Spec.Group + "\x00" + definition.Spec.Names.Kind
}
