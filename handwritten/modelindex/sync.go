package modelindex

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Keys of model_info that mark what the appliance manages.
const (
	infoManaged = "ai_appliance_managed"
	infoSource  = "ai_appliance_source"
	infoType    = "ai_appliance_type"
	// infoListed tells that a provider's model came from ai-external-models.
	infoListed = "ai_appliance_listed"
	// infoRevision tells whether LiteLLM has what is wanted, the provider's key
	// included, which LiteLLM does not show.
	infoRevision = "ai_appliance_revision"
	infoID       = "id"
)

// Deployment is one that LiteLLM has, as it shows it.
type Deployment struct {
	// Name under which clients ask for it.
	Name string `json:"model_name"`
	// Params are litellm_params.
	Params map[string]any `json:"litellm_params"`
	// Info is model_info.
	Info map[string]any `json:"model_info"`
}

// ID that LiteLLM knows the deployment by; may be empty.
func (d Deployment) ID() string { return text(d.Info[infoID]) }

// Managed tells whether the appliance made it.
func (d Deployment) Managed() bool {
	return d.Info[infoManaged] == true || strings.EqualFold(text(d.Info[infoManaged]), "true")
}

// Source of a managed deployment.
func (d Deployment) Source() Source { return Source(text(d.Info[infoSource])) }

// Listed tells whether the deployment came, or may have come, from ai-external-models.
func (d Deployment) Listed() bool { return d.Info[infoListed] != false }

func text(value any) string {
	found, _ := value.(string)
	return found
}

// Verb is what LiteLLM is asked to do.
type Verb int

// Verbs of a Change.
const (
	// Remove deletes a deployment.
	Remove Verb = iota
	// Update changes parameters without a gap in service.
	Update
	// Replace deletes and makes anew, because an update takes nothing away.
	Replace
	// Add makes a deployment.
	Add
)

// Change is one step towards what is wanted.
type Change struct {
	// Verb to carry out.
	Verb Verb
	// ID of the deployment.
	ID string
	// Record that it should become; nil for Remove.
	Record *Record
}

// Memory is what earlier passes learned about LiteLLM. It may be empty.
type Memory struct {
	// Updated are IDs for which an update was sent and did not show.
	Updated map[string]bool
	// Accepted are digests of deployments, by ID, as LiteLLM showed them after it had
	// taken what was wanted. Some releases show other words than they were given.
	Accepted map[string]string
}

// Plan is the way from what LiteLLM has to what is wanted.
type Plan struct {
	// Changes in the order in which they are made: nothing that does not answer is
	// offered for longer than needed.
	Changes []Change
	// Troubles are names that somebody else uses.
	Troubles []Trouble
}

// Sync compares. Only what carries the appliance's mark is changed or deleted.
func Sync(current []Deployment, desired Desired, masterKey string, memory Memory) Plan {
	plan := Plan{}
	managed := map[string][]Deployment{}
	taken, foreign := map[string]bool{}, map[string]bool{}
	for _, deployment := range current {
		taken[deployment.ID()] = true
		switch {
		case !deployment.Managed():
			foreign[deployment.Name] = true
		case deployment.ID() != "":
			managed[deployment.Name] = append(managed[deployment.Name], deployment)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(desired.Records)) {
		record := desired.Records[name]
		known := managed[name]
		delete(managed, name)
		switch {
		case len(known) > 0:
			keep := preferred(known, record)
			for _, extra := range known {
				if extra.ID() != keep.ID() {
					plan.Changes = append(plan.Changes, Change{Verb: Remove, ID: extra.ID()})
				}
			}
			if verb, differs := difference(keep, record, masterKey, memory); differs {
				plan.Changes = append(plan.Changes, Change{Verb: verb, ID: keep.ID(), Record: record})
			}
		case foreign[name]:
			plan.Troubles = append(plan.Troubles, Trouble{
				Name: name, Activation: record.Activation,
				Message: "LiteLLM has a model of this name that the appliance does not manage; delete it there or choose another name",
			})
		default:
			id := freeID(record, taken)
			taken[id] = true
			plan.Changes = append(plan.Changes, Change{Verb: Add, ID: id, Record: record})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(managed)) {
		for _, deployment := range managed[name] {
			if !desired.Holds(name, deployment.Source(), deployment.Listed()) {
				plan.Changes = append(plan.Changes, Change{Verb: Remove, ID: deployment.ID()})
			}
		}
	}
	slices.SortStableFunc(plan.Changes, func(a, b Change) int { return cmp.Compare(a.Verb, b.Verb) })
	return plan
}

// preferred is the deployment with our own ID, else the first.
func preferred(known []Deployment, record *Record) Deployment {
	slices.SortFunc(known, func(a, b Deployment) int { return cmp.Compare(a.ID(), b.ID()) })
	for _, deployment := range known {
		if deployment.ID() == plainID(record) {
			return deployment
		}
	}
	return known[0]
}

func difference(have Deployment, record *Record, masterKey string, memory Memory) (Verb, bool) {
	wanted := Wanted(record, have.ID(), masterKey)
	sameRevision := have.Info[infoRevision] == wanted.Info[infoRevision]
	if sameRevision && (shows(have, wanted) || memory.Accepted[have.ID()] == Shown(have)) {
		return 0, false
	}
	if memory.Updated[have.ID()] || !sameRevision && losesSomething(have, record) {
		return Replace, true
	}
	return Update, true
}

// shows tells whether LiteLLM shows what is wanted. Parameters that it hides are
// not judged, and what it adds is not either.
func shows(have, wanted Deployment) bool {
	for name, value := range wanted.Params {
		if shown, visible := have.Params[name]; visible && name != "api_key" && !same(shown, value) {
			return false
		}
	}
	for name, value := range wanted.Info {
		if !same(have.Info[name], value) {
			return false
		}
	}
	return true
}

// losesSomething tells whether a value must go that an update would leave.
func losesSomething(have Deployment, record *Record) bool {
	gone := func(shown, wanted map[string]any, names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			_, keep := wanted[name]
			return shown[name] != nil && !keep
		})
	}
	// Whether a key is there is not shown.
	_, keyed := record.Params["api_key"]
	return !keyed ||
		gone(have.Params, record.Params, "api_base", "api_version", "custom_llm_provider", "tpm", "rpm") ||
		gone(have.Info, record.Info, "features", "max_input_tokens", "max_output_tokens")
}

// Wanted is the deployment that LiteLLM is sent for a record.
func Wanted(record *Record, id, masterKey string) Deployment {
	info := maps.Clone(record.Info)
	info[infoID] = id
	info[infoRevision] = revision(record, masterKey)
	return Deployment{Name: record.Name, Params: record.Params, Info: info}
}

// revision changes with everything that LiteLLM is sent. Without the master key
// nobody can try keys of providers against it.
func revision(record *Record, masterKey string) string {
	mac := hmac.New(sha256.New, []byte(masterKey))
	mac.Write(canonical(map[string]any{"name": record.Name, "params": record.Params, "info": record.Info}))
	return hex.EncodeToString(mac.Sum(nil))[:16]
}

// Shown is a digest of what LiteLLM shows of a deployment.
func Shown(deployment Deployment) string {
	return digest(map[string]any{"params": deployment.Params, "info": deployment.Info})
}

func digest(value any) string {
	sum := sha256.Sum256(canonical(value))
	return hex.EncodeToString(sum[:])[:16]
}

// canonical is JSON with sorted keys.
func canonical(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		// Nothing but texts, numbers, lists and maps of them reaches this.
		panic(fmt.Sprintf("encoding a %T: %v", value, err))
	}
	return encoded
}

func same(a, b any) bool {
	if x, ok := wholeNumber(a); ok {
		y, ok := wholeNumber(b)
		return ok && x == y
	}
	return bytes.Equal(canonical(a), canonical(b))
}

var notInSlug = regexp.MustCompile(`[^a-zA-Z0-9_.-]+`)

// slug is a name that can stand in an ID.
func slug(name string) string {
	return strings.ToLower(cmp.Or(strings.Trim(notInSlug.ReplaceAllString(name, "-"), "-"), "model"))
}

func plainID(record *Record) string {
	return "ai-appliance-" + string(record.Source) + "-" + slug(record.Name)
}

// freeID tells two names with one slug apart.
func freeID(record *Record, taken map[string]bool) string {
	id := plainID(record)
	if !taken[id] {
		return id
	}
	return id + "-" + digest(record.Name)[:8]
}
