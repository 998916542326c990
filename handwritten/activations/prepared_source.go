package activations

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// AnnotationImageDigests is where the model plane says on a Model or ClusterModel
// which image manifest belongs to which artifact, as
// <artifact digest>=<image digest>, several separated by commas. The status names
// the artifact only: its fields are given (seed 003). A digest says nothing about
// where the registry is.
const AnnotationImageDigests = "ai.deckhouse.io/image-digests"

// Names of the two kinds of prepared models, as modelRef has them.
const (
	kindModel        = "Model"
	kindClusterModel = "ClusterModel"
)

// digestPattern is what status.artifactDigest takes (contract/rulings.md 2).
var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// maxPreparedMessage bounds what is passed on of a model's own message, in bytes.
const maxPreparedMessage = 256

// preparedStatus is what both kinds say of themselves.
type preparedStatus struct {
	phase, progress, message string
	digest                   string
	sizeBytes                int64
	format                   string
	parameterCount, context  int64
	endpoints                []string
}

// PreparedFrom reads a Model or ClusterModel of group ai.deckhouse.io as an engine
// sees it; nil for every other object. pinnedDigest is the artifact that the
// activation keeps to, empty before its first success.
//
// Without a pin the object must be Ready and not on its way out. With one it is
// enough that artifact and facts are known: an activation in service keeps its
// model while the object waits for its deletion.
//
// The image is known by its digest and its repository below the registry; call In
// with the registry to complete it.
func PreparedFrom(kind string, object client.Object, pinnedDigest string) *PreparedModel {
	var status preparedStatus
	repository := ""
	switch model := object.(type) {
	case *aiv1alpha1.Model:
		if kind != kindModel || model == nil {
			return nil
		}
		status = modelStatus(model)
		repository = "ai-models/catalog/namespaced/" + model.Namespace + "/" + model.Name + "/" + string(model.UID)
	case *aiv1alpha1.ClusterModel:
		if kind != kindClusterModel || model == nil {
			return nil
		}
		status = clusterModelStatus(model)
		repository = "ai-models/catalog/cluster/" + model.Name + "/" + string(model.UID)
	default:
		return nil
	}
	prepared := &PreparedModel{
		Kind: kind, Name: object.GetName(), Digest: pinnedDigest,
		Format: status.format, EndpointTypes: status.endpoints,
		ContextWindowTokens: status.context, SizeBytes: status.sizeBytes, ParameterCount: status.parameterCount,
		repository: repository,
	}
	if prepared.Digest == "" {
		prepared.Digest = status.digest
	}
	prepared.Detail = status.obstacle(pinnedDigest != "", object.GetDeletionTimestamp() != nil)
	if prepared.Detail != "" {
		return prepared
	}
	if !digestPattern.MatchString(prepared.Digest) {
		prepared.Detail = "its artifact has no usable digest"
		return prepared
	}
	prepared.imageDigest = imageDigest(object.GetAnnotations()[AnnotationImageDigests], prepared.Digest)
	if prepared.imageDigest == "" {
		prepared.Detail = "there is no image of artifact " + prepared.Digest + " that a node could mount"
		return prepared
	}
	prepared.Ready = true
	return prepared
}

// In completes the image with the registry, <host>[:<port>][/<prefix>] without a
// scheme. Without a registry the model cannot be served. It returns the model
// itself.
func (p *PreparedModel) In(registry string) *PreparedModel {
	if p == nil || !p.Ready {
		return p
	}
	registry = strings.Trim(registry, "/")
	if registry == "" {
		p.Ready, p.Detail = false, "the operator was not told which registry has the prepared models"
		return p
	}
	p.Image = registry + "/" + p.repository + "@" + p.imageDigest
	return p
}

// weightsMi is the least memory in Mi that the weights take once they are loaded;
// 0 when it is not known. An engine keeps weights as they lie in the files, except
// that it halves those in single precision to two bytes for each parameter.
func (p *PreparedModel) weightsMi() int64 {
	if p == nil || p.SizeBytes <= 0 {
		return 0
	}
	least := p.SizeBytes
	if p.ParameterCount > 0 && p.ParameterCount < least/2 {
		least = 2 * p.ParameterCount
	}
	return least >> 20
}

// obstacle says in a few words why the model cannot be used; empty when it can.
func (s *preparedStatus) obstacle(pinned, deleting bool) string {
	switch {
	case pinned && s.digest != "" && s.format != "":
		return ""
	case deleting:
		return "it is being deleted"
	case s.phase == "":
		return "nobody has looked at it yet"
	case s.phase != string(aiv1alpha1.ModelStatusPhaseReady):
		detail := "it is " + s.phase
		if s.progress != "" {
			detail += " (" + s.progress + ")"
		}
		if s.message != "" {
			detail += ": " + s.message
		}
		return detail
	case s.digest == "":
		return "it has no artifact"
	}
	return ""
}

func modelStatus(model *aiv1alpha1.Model) preparedStatus {
	status := preparedStatus{phase: string(model.Status.Phase), message: readyMessage(model.Status.Conditions)}
	status.progress = ptr.Deref(model.Status.Progress, "")
	if artifact := model.Status.Artifact; artifact != nil {
		status.digest, status.sizeBytes = ptr.Deref(artifact.Digest, ""), artifact.SizeBytes
	}
	if facts := model.Status.Resolved; facts != nil {
		status.format, status.endpoints = string(facts.Format), texts(facts.SupportedEndpointTypes)
		status.parameterCount, status.context = facts.ParameterCount, facts.ContextWindowTokens
	}
	return status
}

func clusterModelStatus(model *aiv1alpha1.ClusterModel) preparedStatus {
	status := preparedStatus{phase: string(model.Status.Phase), message: readyMessage(model.Status.Conditions)}
	status.progress = ptr.Deref(model.Status.Progress, "")
	if artifact := model.Status.Artifact; artifact != nil {
		status.digest, status.sizeBytes = ptr.Deref(artifact.Digest, ""), artifact.SizeBytes
	}
	if facts := model.Status.Resolved; facts != nil {
		status.format, status.endpoints = string(facts.Format), texts(facts.SupportedEndpointTypes)
		status.parameterCount, status.context = facts.ParameterCount, facts.ContextWindowTokens
	}
	return status
}

// readyMessage is what the Ready condition says to people.
func readyMessage(conditions []metav1.Condition) string {
	if ready := kube.FindCondition(conditions, "Ready"); ready != nil {
		return kube.Truncate(kube.Sanitize(ready.Message), maxPreparedMessage)
	}
	return ""
}

// imageDigest finds the image of an artifact in AnnotationImageDigests; empty when
// it is not there or is no digest.
func imageDigest(annotation, artifact string) string {
	for pair := range strings.SplitSeq(annotation, ",") {
		of, image, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if of == artifact && digestPattern.MatchString(image) {
			return image
		}
	}
	return ""
}
