package modelindex

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

// BenchmarkPass is the arithmetic of a pass over 1000 models in which nothing is
// to be done, and of one that writes the index.
func BenchmarkPass(b *testing.B) {
	facts := Facts{}
	for i := range 1000 {
		facts.Models = append(facts.Models, &kubeaiv1.Model{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%04d", i), Annotations: map[string]string{AnnotationContextWindow: "20000"}},
			Spec:       &kubeaiv1.ModelSpec{Engine: "VLLM", Features: []kubeaiv1.ModelSpecFeaturesItem{"TextGeneration"}, URL: "hf://a/b"},
			Status:     kubeaiv1.ModelStatus{Replicas: &kubeaiv1.ModelStatusReplicas{All: 1, Ready: 1}},
		})
	}
	settings := DefaultSettings()
	deployments := applied(nil, Sync(nil, Desire(facts, settings), testKey, Memory{}).Changes)
	b.Run("compare", func(b *testing.B) {
		for b.Loop() {
			if changes := Sync(deployments, Desire(facts, settings), testKey, Memory{}).Changes; len(changes) > 0 {
				b.Fatal(changes[0])
			}
		}
	})
	b.Run("render", func(b *testing.B) {
		for b.Loop() {
			if files := Render(IndexOf(deployments, settings), settings); files.Omitted > 0 {
				b.Fatal(files.Omitted)
			}
		}
	})
}
