package conditions

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Table is one file of spec/conditions.
type Table struct {
	// File is the path below spec/, with forward slashes.
	File string `yaml:"-"`
	// Group and Kind name the CRD.
	Group string `yaml:"group"`
	Kind  string `yaml:"kind"`
	// Conditions in the order of the file.
	Conditions []Condition `yaml:"conditions"`
	// Phases in the order of the file; none for kinds without a phase.
	Phases []Phase `yaml:"phases"`
}

// Condition is one condition type.
type Condition struct {
	// Type is the value of the condition's type.
	Type string `yaml:"type"`
	// Polarity is positive when True is the good state.
	Polarity string `yaml:"polarity"`
	// Summary marks the one condition that summarises the others.
	Summary bool `yaml:"summary"`
	// Meaning is one sentence for people.
	Meaning string `yaml:"meaning"`
	// Reasons that the condition can have.
	Reasons []Reason `yaml:"reasons"`
}

// Reason is one reason of a condition.
type Reason struct {
	// Reason is the value of the condition's reason.
	Reason string `yaml:"reason"`
	// Statuses with which the reason occurs.
	Statuses []string `yaml:"statuses"`
	// Meaning is one sentence for people.
	Meaning string `yaml:"meaning"`
}

// Phase is one value of status.phase.
type Phase struct {
	// Phase is the value.
	Phase string `yaml:"phase"`
	// Terminal phases are left only by a change of the object.
	Terminal bool `yaml:"terminal"`
	// Meaning is one sentence for people.
	Meaning string `yaml:"meaning"`
	// Reasons that occur while the object is in the phase.
	Reasons []string `yaml:"reasons"`
}

const folder = "conditions"

// Load reads every table of the spec and checks it against its CRD. The tables
// come ordered by group and kind.
func Load(ws *workspace.Workspace) ([]Table, error) {
	crds, err := ws.CRDs()
	if err != nil {
		return nil, err
	}
	files, err := tableFiles(os.DirFS(ws.SpecDir))
	if err != nil {
		return nil, err
	}
	var tables []Table
	for _, crd := range crds {
		file := path.Join(folder, crd.Group(), strings.ToLower(crd.Kind())+".yaml")
		text, found := files[file]
		if !found {
			return nil, fmt.Errorf("reading the condition tables: spec/%s is missing, spec/%s defines %s", file, crd.File, crd.Kind())
		}
		delete(files, file)
		table, err := decode(text)
		if err == nil {
			table.File = file
			err = check(table, crd)
		}
		if err != nil {
			return nil, fmt.Errorf("reading spec/%s: %w", file, err)
		}
		tables = append(tables, table)
	}
	for file := range files {
		return nil, fmt.Errorf("reading the condition tables: spec/%s belongs to no kind of spec/crds", file)
	}
	return tables, nil
}

func tableFiles(spec fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(spec, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if path.Ext(name) != ".yaml" || !entry.Type().IsRegular() {
			return fmt.Errorf("spec/%s is no YAML file", name)
		}
		files[name], err = fs.ReadFile(spec, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the condition tables: %w", err)
	}
	return files, nil
}

func decode(text []byte) (Table, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var table Table
	if err := decoder.Decode(&table); err != nil {
		return Table{}, err
	}
	if err := decoder.Decode(new(yamlv3.Node)); !errors.Is(err, io.EOF) {
		return Table{}, errors.New("want one YAML document, found several")
	}
	return table, nil
}

// check finds what does not fit together in a table, or between it and its CRD.
func check(table Table, crd workspace.CRD) error {
	if table.Group != crd.Group() {
		return fmt.Errorf("group: %q, must be %q as the folder", table.Group, crd.Group())
	}
	if table.Kind != crd.Kind() {
		return fmt.Errorf("kind: %q, must be %q as in spec/%s", table.Kind, crd.Kind(), crd.File)
	}
	schema, err := readStatus(crd)
	if err != nil {
		return err
	}
	if err := checkConditions(table, schema); err != nil {
		return err
	}
	return checkPhases(table, schema)
}

// statusSchema is what the CRD says about conditions and phase.
type statusSchema struct {
	typePattern, reasonPattern *regexp.Regexp
	// phases is nil when the kind has no phase.
	phases []string
}

func readStatus(crd workspace.CRD) (statusSchema, error) {
	var found statusSchema
	root := crd.Definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	status := root.Properties["status"]
	list, exists := status.Properties["conditions"]
	if !exists || list.Items == nil || list.Items.Schema == nil {
		return found, fmt.Errorf("spec/%s has no status.conditions", crd.File)
	}
	for name, into := range map[string]**regexp.Regexp{"type": &found.typePattern, "reason": &found.reasonPattern} {
		pattern, err := regexp.Compile(list.Items.Schema.Properties[name].Pattern)
		if err != nil || pattern.String() == "" {
			return found, fmt.Errorf("spec/%s has no usable pattern for status.conditions[].%s", crd.File, name)
		}
		*into = pattern
	}
	if phase, exists := status.Properties["phase"]; exists {
		found.phases = []string{}
		for _, value := range phase.Enum {
			found.phases = append(found.phases, unquote(value))
		}
	}
	return found, nil
}

func unquote(value apiextensionsv1.JSON) string { return strings.Trim(string(value.Raw), `"`) }

func checkConditions(table Table, schema statusSchema) error {
	summaries, started := 0, false
	types := map[string]bool{}
	for i, condition := range table.Conditions {
		at := fmt.Sprintf("conditions[%d]", i)
		switch {
		case !schema.typePattern.MatchString(condition.Type):
			return fmt.Errorf("%s.type: %q, must match %s", at, condition.Type, schema.typePattern)
		case types[condition.Type]:
			return fmt.Errorf("%s.type: %q appears twice", at, condition.Type)
		case condition.Polarity != "positive" && condition.Polarity != "negative":
			return fmt.Errorf("%s.polarity: %q, must be positive or negative", at, condition.Polarity)
		case strings.TrimSpace(condition.Meaning) == "":
			return fmt.Errorf("%s.meaning: required", at)
		case len(condition.Reasons) == 0:
			return fmt.Errorf("%s.reasons: must have at least one", at)
		}
		types[condition.Type] = true
		reasons := map[string]bool{}
		for j, reason := range condition.Reasons {
			here := fmt.Sprintf("%s.reasons[%d]", at, j)
			if err := checkReason(here, reason, schema.reasonPattern); err != nil {
				return err
			}
			if reasons[reason.Reason] {
				return fmt.Errorf("%s.reason: %q appears twice", here, reason.Reason)
			}
			reasons[reason.Reason] = true
			if condition.Summary && reason.Reason == "Reconciling" && slices.Contains(reason.Statuses, "Unknown") {
				started = true
			}
		}
		if condition.Summary {
			summaries++
		}
	}
	if summaries != 1 {
		return fmt.Errorf("conditions: %d with summary: true, must be exactly one", summaries)
	}
	if !started {
		return errors.New("conditions: the summary needs the reason Reconciling with status Unknown, for the first pass")
	}
	return nil
}

func checkReason(at string, reason Reason, pattern *regexp.Regexp) error {
	if !pattern.MatchString(reason.Reason) {
		return fmt.Errorf("%s.reason: %q, must match %s", at, reason.Reason, pattern)
	}
	if strings.TrimSpace(reason.Meaning) == "" {
		return fmt.Errorf("%s.meaning: required", at)
	}
	if len(reason.Statuses) == 0 {
		return fmt.Errorf("%s.statuses: must have at least one", at)
	}
	for k, status := range reason.Statuses {
		if !slices.Contains([]string{"True", "False", "Unknown"}, status) {
			return fmt.Errorf("%s.statuses[%d]: %q, must be one of True, False, Unknown", at, k, status)
		}
		if slices.Contains(reason.Statuses[:k], status) {
			return fmt.Errorf("%s.statuses[%d]: %q appears twice", at, k, status)
		}
	}
	return nil
}

func checkPhases(table Table, schema statusSchema) error {
	if schema.phases == nil && len(table.Phases) > 0 {
		return errors.New("phases: the CRD has no status.phase")
	}
	var seen []string
	for i, phase := range table.Phases {
		at := fmt.Sprintf("phases[%d]", i)
		switch {
		case !slices.Contains(schema.phases, phase.Phase):
			return fmt.Errorf("%s.phase: %q, the CRD knows %s", at, phase.Phase, strings.Join(schema.phases, ", "))
		case slices.Contains(seen, phase.Phase):
			return fmt.Errorf("%s.phase: %q appears twice", at, phase.Phase)
		case strings.TrimSpace(phase.Meaning) == "":
			return fmt.Errorf("%s.meaning: required", at)
		}
		seen = append(seen, phase.Phase)
		for j, reason := range phase.Reasons {
			if !table.hasReason(reason) {
				return fmt.Errorf("%s.reasons[%d]: %q is a reason of no condition", at, j, reason)
			}
			if slices.Contains(phase.Reasons[:j], reason) {
				return fmt.Errorf("%s.reasons[%d]: %q appears twice", at, j, reason)
			}
		}
	}
	for _, value := range schema.phases {
		if !slices.Contains(seen, value) {
			return fmt.Errorf("phases: %q of the CRD's status.phase is missing", value)
		}
	}
	return nil
}

func (t Table) hasReason(name string) bool {
	return slices.ContainsFunc(t.Conditions, func(c Condition) bool {
		return slices.ContainsFunc(c.Reasons, func(r Reason) bool { return r.Reason == name })
	})
}
