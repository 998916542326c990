// Package standin plays KubeAI, for tests and for `magicstick dev`, where
// neither KubeAI nor any node runs.
//
// In: kubeai.org/v1 Models of one namespace, and the resource profiles in the
// ConfigMap that KubeAI's HelmRelease takes its values from. Out: Pods and the
// status of the Models, as KubeAI is documented to make them
// (contract/appliance.md C.6 and C.7; rollouts: kubeai-project/kubeai pull
// request 241 and issue 442). No model is loaded and no request is answered,
// except Ollama's for its memory: the package also plays the kubelet for its own Pods, which stay without a node
// and only change their status.
//
// What it does as KubeAI does: Pods with the label model=<name> and the Model as
// their controller; spec.replicas, which KubeAI itself keeps between the bounds;
// a Model that changes gets new Pods, as many more than wanted meanwhile as
// modelRollouts.surge of the values says (else 1), and loses the old ones when
// those are Ready, or before where there may be none more; profiles that change take effect
// after a restart; a profile that is unknown or not <name>:<int> gives no Pod and
// only a line in the log; a Failed Pod is not replaced until somebody deletes it.
// What it does not: load balancing, autoscaling, caches, adapters.
//
// The annotation AnnotationFate of a Model makes its Pods fail, see Fate.
package standin
