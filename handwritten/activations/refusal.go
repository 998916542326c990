package activations

import (
	"fmt"
	"strings"

	"magicstick.dev/operator/generated/conditions"
)

// Refusal says why an activation cannot be carried out as it stands, in a way
// that a person can act on.
type Refusal struct {
	// Reason is a reason of the Ready condition, InvalidModelSpec as a rule.
	Reason string
	// Field is the path that is at fault; empty when none is.
	Field string
	// Value is what the field has; empty when it is missing.
	Value string
	// Rule is what is broken, in words.
	Rule string
	// Allowed lists the values that would do; empty when the rule says enough.
	Allowed []string
}

// Error is fit for status.message.
func (r *Refusal) Error() string {
	var text strings.Builder
	text.WriteString("resolving the activation: ")
	if r.Field != "" {
		text.WriteString(r.Field + ": ")
	}
	text.WriteString(r.Rule)
	if r.Value != "" {
		fmt.Fprintf(&text, ", got %q", r.Value)
	}
	if len(r.Allowed) > 0 {
		text.WriteString("; allowed: " + strings.Join(r.Allowed, ", "))
	}
	return text.String()
}

// invalid is a Refusal for InvalidModelSpec.
func invalid(field, rule string, value any, allowed ...string) *Refusal {
	shown := ""
	if value != nil {
		shown = fmt.Sprint(value)
	}
	return &Refusal{
		Reason: conditions.ModelActivationReasonInvalidModelSpec, Field: field, Value: shown, Rule: rule, Allowed: allowed,
	}
}

// forbidden refuses a field that is set but has no meaning for the engine.
func forbidden(set bool, field, rule string) error {
	if !set {
		return nil
	}
	return invalid("spec.local."+field, rule, nil)
}

// texts turns enumeration values into plain strings.
func texts[T ~string](values []T) []string {
	plain := make([]string, 0, len(values))
	for _, value := range values {
		plain = append(plain, string(value))
	}
	return plain
}
