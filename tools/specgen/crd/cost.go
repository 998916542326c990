package crd

import (
	"context"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
	"text/tabwriter"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The API server's limits on the estimated cost of CEL, and the share of them that
// this project's own CRDs may use: far enough below that a wider bound in a later
// version does not hit them.
const (
	RuleCostLimit = validation.StaticEstimatedCostLimit
	CRDCostLimit  = validation.StaticEstimatedCRDCostLimit
	ceilingShare  = 10
)

// RuleCost is the worst case of one CEL expression, as the API server estimates it.
type RuleCost struct {
	// CRD is the name of the definition.
	CRD string
	// Path is the JSON path of the rule or messageExpression.
	Path string
	// Cost is the estimate for all evaluations in one object, in CEL cost units.
	Cost uint64
	// Rule is the expression, Message what a person is told when it refuses an object.
	Rule, Message string
	// Error says why the rule does not compile; empty when it does.
	Error string
}

// Percent is the share of the API server's limit for one rule, in percent.
func (c RuleCost) Percent() float64 { return float64(c.Cost) * 100 / RuleCostLimit }

// Costs estimates every rule of every definition, most expensive first.
func Costs(definitions []*Definition) ([]RuleCost, error) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	var costs []RuleCost
	for _, d := range definitions {
		internal, err := d.internal()
		if err != nil {
			return nil, err
		}
		for i, version := range internal.Spec.Versions {
			schema := version.Schema
			if schema == nil {
				schema = internal.Spec.Validation // shared by all versions
			}
			if schema == nil || schema.OpenAPIV3Schema == nil {
				continue
			}
			// Rules cannot be typed in a schema that is not structural; Check says what
			// is wrong with it.
			structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
			at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
			if err != nil || len(structuralschema.ValidateStructural(at, structural)) > 0 {
				continue
			}
			w := &costWalk{name: d.Name(), env: env}
			w.node(schema.OpenAPIV3Schema, at, validation.RootCELContext(schema.OpenAPIV3Schema))
			costs = append(costs, w.costs...)
		}
	}
	sort.SliceStable(costs, func(i, j int) bool {
		if costs[i].Cost != costs[j].Cost {
			return costs[i].Cost > costs[j].Cost
		}
		return costs[i].CRD+costs[i].Path < costs[j].CRD+costs[j].Path
	})
	return costs, nil
}

type costWalk struct {
	name  string
	env   *environment.EnvSet
	costs []RuleCost
}

func (w *costWalk) node(s *apiextensions.JSONSchemaProps, at *field.Path, context *validation.CELSchemaContext) {
	if len(s.XValidations) > 0 {
		w.rules(s, at.Child("x-kubernetes-validations"), context)
	}
	for _, name := range sortedKeys(s.Properties) {
		sub := s.Properties[name]
		w.node(&sub, at.Child("properties").Key(name), context.ChildPropertyContext(&sub, name))
	}
	if s.Items != nil && s.Items.Schema != nil {
		w.node(s.Items.Schema, at.Child("items"), context.ChildItemsContext(s.Items.Schema))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		sub := s.AdditionalProperties.Schema
		w.node(sub, at.Child("additionalProperties"), context.ChildAdditionalPropertiesContext(sub))
	}
}

func (w *costWalk) rules(s *apiextensions.JSONSchemaProps, at *field.Path, context *validation.CELSchemaContext) {
	info, err := context.TypeInfo()
	if err != nil || info == nil {
		w.costs = append(w.costs, RuleCost{CRD: w.name, Path: at.String(), Error: fmt.Sprintf("cannot be typed: %v", err)})
		return
	}
	results, err := schemacel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit, w.env, schemacel.NewExpressionsEnvLoader())
	if err != nil {
		w.costs = append(w.costs, RuleCost{CRD: w.name, Path: at.String(), Error: err.Error()})
		return
	}
	for i, result := range results {
		source := s.XValidations[i]
		rule := RuleCost{CRD: w.name, Path: at.Index(i).Child("rule").String(), Rule: source.Rule, Message: source.Message}
		if result.Error != nil {
			rule.Error = result.Error.Detail
		} else {
			cardinality := result.MaxCardinality
			if context.MaxCardinality != nil {
				cardinality = *context.MaxCardinality
			}
			rule.Cost = multiply(result.MaxCost, cardinality)
		}
		w.costs = append(w.costs, rule)
		if source.MessageExpression == "" {
			continue
		}
		message := RuleCost{CRD: w.name, Path: at.Index(i).Child("messageExpression").String(), Rule: source.MessageExpression, Cost: result.MessageExpressionMaxCost}
		if result.MessageExpressionError != nil {
			message.Error = result.MessageExpressionError.Detail
		}
		w.costs = append(w.costs, message)
	}
}

// multiply stops at the largest number, as the API server does: an unbounded list
// has a cost that no integer holds.
func multiply(cost, cardinality uint64) uint64 {
	if cost != 0 && math.MaxUint64/cost < cardinality {
		return math.MaxUint64
	}
	return cost * cardinality
}

// WriteCosts prints the table of the cost sub-command: every rule of the CRDs below
// dir with its cost and its share of the limits, then the total of each CRD.
func WriteCosts(_ context.Context, dir string, out io.Writer) error {
	definitions, err := LoadDir(dir)
	if err != nil {
		return err
	}
	costs, err := Costs(definitions)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "COST\t% OF LIMIT\tCRD\tPATH\tMESSAGE\tRULE")
	totals := map[string]uint64{}
	for _, c := range costs {
		if c.Error != "" {
			fmt.Fprintf(table, "-\t-\t%s\t%s: %s\t%s\t%s\n", c.CRD, c.Path, c.Error, oneLine(c.Message), oneLine(c.Rule))
			continue
		}
		totals[c.CRD] += min(c.Cost, math.MaxUint64-totals[c.CRD])
		fmt.Fprintf(table, "%d\t%.3f\t%s\t%s\t%s\t%s\n", c.Cost, c.Percent(), c.CRD, c.Path, oneLine(c.Message), oneLine(c.Rule))
	}
	for _, name := range sortedKeys(totals) {
		fmt.Fprintf(table, "%d\t%.3f\t%s\ttotal\t\t\n", totals[name], float64(totals[name])*100/CRDCostLimit, name)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the cost table: %w", err)
	}
	return nil
}

// oneLine makes a text fit into a cell.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// WriteSummary prints one line about all rules of the definitions: how many there
// are, and the one that comes nearest to the API server's limit.
func WriteSummary(definitions []*Definition, out io.Writer) error {
	costs, err := Costs(definitions)
	if err != nil {
		return err
	}
	if len(costs) == 0 {
		_, err = fmt.Fprintf(out, "no CEL rules in %d CRDs\n", len(definitions))
		return err
	}
	dearest := costs[0] // they come in this order
	_, err = fmt.Fprintf(out, "%d CEL rules in %d CRDs; the dearest costs %d, %.3f %% of the limit: %s %s (%s)\n",
		len(costs), len(definitions), dearest.Cost, dearest.Percent(), dearest.CRD, dearest.Path, oneLine(dearest.Message))
	return err
}
