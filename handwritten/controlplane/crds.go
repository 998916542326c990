package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"sigs.k8s.io/yaml"
)

// crdWait bounds how long an accepted CRD may take to be served.
const crdWait = 30 * time.Second

// InstallCRDs creates or updates every CustomResourceDefinition in the YAML
// files of the given file systems, folders included, and returns when the API
// server serves all of them. A file with anything else in it is an error that
// names the file.
func InstallCRDs(ctx context.Context, config *rest.Config, sources ...fs.FS) error {
	return installCRDs(ctx, config, sources, applyCRD)
}

// InstallMissingCRDs is InstallCRDs for a cluster of somebody else: a CRD that
// is there stays as it is. It returns how many were not.
func InstallMissingCRDs(ctx context.Context, config *rest.Config, sources ...fs.FS) (int, error) {
	created := 0
	err := installCRDs(ctx, config, sources,
		func(ctx context.Context, client clientset.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
			_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
			switch {
			case err == nil:
				created++
			case !apierrors.IsAlreadyExists(err):
				return fmt.Errorf("installing the CRD %s: %w", crd.Name, err)
			}
			return nil
		})
	return created, err
}

func installCRDs(ctx context.Context, config *rest.Config, sources []fs.FS,
	install func(context.Context, clientset.Interface, *apiextensionsv1.CustomResourceDefinition) error,
) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("installing CRDs: making the client: %w", err)
	}
	var names []string
	for _, source := range sources {
		crds, err := ReadCRDs(source)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			if err := install(ctx, client, crd); err != nil {
				return err
			}
			names = append(names, crd.Name)
		}
	}
	for _, name := range names {
		if err := waitEstablished(ctx, client, name); err != nil {
			return err
		}
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

func applyCRD(ctx context.Context, client clientset.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(ctx, crd, metav1.CreateOptions{})
	for apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		var current *apiextensionsv1.CustomResourceDefinition
		if current, err = definitions.Get(ctx, crd.Name, metav1.GetOptions{}); err != nil {
			break
		}
		wanted := crd.DeepCopy()
		wanted.ResourceVersion = current.ResourceVersion
		_, err = definitions.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("installing the CRD %s: %w", crd.Name, err)
	}
	return nil
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
