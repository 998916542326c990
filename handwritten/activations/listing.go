package activations

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/kube"
)

// IndexKey is the entry of the generated catalog's ConfigMap that lists the models.
const IndexKey = "catalog.json"

// generated is what the generated catalog says.
type generated struct {
	// listed has the ids and the names of the models.
	listed map[string]bool
	// leftOut says of models why they are not listed.
	leftOut map[string]string
	// problem says why the catalog may be out of date; empty while all is well.
	problem string
}

// indexReader reads the generated catalogs, each parsed once per change.
type indexReader struct {
	mutex     sync.Mutex
	documents map[types.NamespacedName]*kube.ConfigMapDocument[generated]
}

func (i *indexReader) listing(ctx context.Context, reader client.Reader, name types.NamespacedName, model string) Listing {
	i.mutex.Lock()
	document := i.documents[name]
	if document == nil {
		if i.documents == nil {
			i.documents = map[types.NamespacedName]*kube.ConfigMapDocument[generated]{}
		}
		document = &kube.ConfigMapDocument[generated]{Reader: reader, Name: name, Parse: parseIndex}
		i.documents[name] = document
	}
	i.mutex.Unlock()
	catalog, err := document.Get(ctx)
	if err != nil {
		return Listing{Problem: err.Error()}
	}
	if catalog.listed[model] {
		return Listing{Listed: true}
	}
	return Listing{Why: cmp.Or(catalog.leftOut[model], catalog.problem)}
}

// parseIndex collects the ids and names of the listed models (contract/appliance.md
// C.6 (11)) and what is said of the others (H31).
func parseIndex(configMap *corev1.ConfigMap) (generated, error) {
	catalog := generated{listed: map[string]bool{}, problem: configMap.Annotations[kube.AnnotationIndexError]}
	if told := configMap.Annotations[kube.AnnotationIndexLeftOut]; told != "" && json.Unmarshal([]byte(told), &catalog.leftOut) != nil {
		// It explains and decides nothing; whoever wrote it keeps it in order.
		catalog.leftOut = nil
	}
	text, found := configMap.Data[IndexKey]
	if !found {
		return catalog, nil // a bootstrap object lists nothing
	}
	var index struct {
		Models []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"models"`
	}
	if err := json.Unmarshal([]byte(text), &index); err != nil {
		return generated{}, fmt.Errorf("reading %s of ConfigMap %s/%s: %w", IndexKey, configMap.Namespace, configMap.Name, err)
	}
	for _, model := range index.Models {
		catalog.listed[model.ID], catalog.listed[model.Name] = true, true
	}
	delete(catalog.listed, "")
	return catalog, nil
}
