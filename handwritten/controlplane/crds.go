package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

// crdWait bounds how long an accepted CRD may take to be served.
const crdWait = 30 * time.Second

// CRDChanges says what EnsureCRDs did to which CustomResourceDefinitions.
type CRDChanges struct {
	Created, Updated, Unchanged []string
}

// InstallCRDs creates or updates every CustomResourceDefinition in the YAML
// files of the given file systems, folders included, and returns when the API
// server serves all of them. A file with anything else in it is an error that
// names the file.
func InstallCRDs(ctx context.Context, config *rest.Config, sources ...fs.FS) error {
	_, err := EnsureCRDs(ctx, config, sources...)
	return err
}

// EnsureCRDs is InstallCRDs for those who say what happened. Labels and
// annotations that others put on a CRD stay.
func EnsureCRDs(ctx context.Context, config *rest.Config, sources ...fs.FS) (CRDChanges, error) {
	return installCRDs(ctx, config, sources, true)
}

// InstallMissingCRDs is InstallCRDs for CRDs of somebody else: one that is
// there stays as it is. It returns how many were not.
func InstallMissingCRDs(ctx context.Context, config *rest.Config, sources ...fs.FS) (int, error) {
	changes, err := installCRDs(ctx, config, sources, false)
	return len(changes.Created), err
}

// installCRDs creates what is missing and, when asked, updates the rest.
func installCRDs(ctx context.Context, config *rest.Config, sources []fs.FS, update bool) (CRDChanges, error) {
	var changes CRDChanges
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return changes, fmt.Errorf("installing CRDs: making the client: %w", err)
	}
	var names []string
	for _, source := range sources {
		crds, err := ReadCRDs(source)
		if err != nil {
			return changes, err
		}
		for _, crd := range crds {
			if err := installCRD(ctx, client, crd, update, &changes); err != nil {
				return changes, fmt.Errorf("installing the CRD %s: %w", crd.Name, err)
			}
			names = append(names, crd.Name)
		}
	}
	for _, name := range names {
		if err := waitEstablished(ctx, client, name); err != nil {
			return changes, err
		}
	}
	return changes, nil
}

func installCRD(ctx context.Context, client clientset.Interface, crd *apiextensionsv1.CustomResourceDefinition, update bool, changes *CRDChanges) error {
	_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
	if err == nil {
		changes.Created = append(changes.Created, crd.Name)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	changed := false
	if update {
		if changed, err = updateCRD(ctx, client, crd); err != nil {
			return err
		}
	}
	if changed {
		changes.Updated = append(changes.Updated, crd.Name)
	} else {
		changes.Unchanged = append(changes.Unchanged, crd.Name)
	}
	return nil
}

// ReadCRDs reads every CustomResourceDefinition in the .yaml and .yml files of
// source, in the order of the file names.
func ReadCRDs(source fs.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ext := path.Ext(name); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		data, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict(document, crd); err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			if crd.Kind == "" && crd.Name == "" {
				continue // a document of comments
			}
			if crd.Kind != "CustomResourceDefinition" || crd.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
				return fmt.Errorf("reading %s: expected %s CustomResourceDefinition, found %s %s",
					name, apiextensionsv1.SchemeGroupVersion, crd.APIVersion, crd.Kind)
			}
			crds = append(crds, crd)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading CRDs: %w", err)
	}
	return crds, nil
}

// updateCRD lets the API server, which knows all defaults, find out whether
// anything differs: it writes nothing when an update changes nothing.
func updateCRD(ctx context.Context, client clientset.Interface, crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	changed := false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wanted := current.DeepCopy()
		crd.Spec.DeepCopyInto(&wanted.Spec)
		wanted.Labels = merged(wanted.Labels, crd.Labels)
		wanted.Annotations = merged(wanted.Annotations, crd.Annotations)
		updated, err := definitions.Update(ctx, wanted, metav1.UpdateOptions{})
		if err == nil {
			changed = updated.ResourceVersion != current.ResourceVersion
		}
		return err
	})
	return changed, err
}

func merged(present, ours map[string]string) map[string]string {
	if present == nil {
		return ours
	}
	maps.Copy(present, ours)
	return present
}

// waitEstablished returns when the API server serves the CRD, or with the
// condition that says why it does not.
func waitEstablished(ctx context.Context, client clientset.Interface, name string) error {
	state := "no condition yet"
	err := wait.PollUntilContextTimeout(ctx, 25*time.Millisecond, crdWait, true, func(ctx context.Context) (bool, error) {
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		var refusals []string
		for _, condition := range crd.Status.Conditions {
			switch {
			case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
				return true, nil
			case condition.Status == apiextensionsv1.ConditionFalse:
				refusals = append(refusals, fmt.Sprintf("%s: %s: %s", condition.Type, condition.Reason, condition.Message))
			}
		}
		if len(refusals) > 0 {
			state = strings.Join(refusals, "; ")
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the CRD %s to be served (%s): %w", name, state, err)
	}
	return nil
}
