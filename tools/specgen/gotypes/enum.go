package gotypes

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// enumType declares a named type with constants for an enum of strings or of
// integers; nil for every other node. Booleans and numbers keep the plain type.
func (e *emitter) enumType(n *node, name, underlying, format string) *typeDecl {
	s := n.schema
	if len(s.Enum) == 0 || underlying != "string" && s.Type != "integer" {
		return nil
	}
	argument, ok := enumArgument(s.Enum)
	if !ok {
		return nil
	}
	var values []enumValue
	seen := map[string]bool{}
	for _, raw := range s.Enum {
		value := enumValue{}
		switch v := decode(raw.Raw).(type) {
		case string:
			value = enumValue{literal: strconv.Quote(v), shown: v}
		case json.Number:
			n, err := v.Int64()
			if err != nil || underlying == "int32" && (n < math.MinInt32 || n > math.MaxInt32) {
				return nil
			}
			literal := strconv.FormatInt(n, 10)
			value = enumValue{literal: literal, shown: strings.Replace(literal, "-", "Minus", 1)}
		}
		if value.literal == "" || (s.Type == "string") != (value.literal[0] == '"') {
			return nil
		}
		if !seen[value.literal] {
			seen[value.literal] = true
			values = append(values, value)
		}
	}
	decl := e.declare(n, name)
	decl.underlying, decl.values = underlying, values
	decl.markers = append(decl.markers, validation+"Enum="+argument)
	if s.Format != format {
		decl.markers = append(decl.markers, validation+"Format="+quote(s.Format))
	}
	return decl
}

// nameConstants gives every enum value a name that is unique in the kind. It runs
// after all types have their names: types are what people write, so they go first.
func (e *emitter) nameConstants() {
	for _, decl := range e.decls {
		names := map[string]int{}
		for _, value := range decl.values {
			names[constName(value.shown)]++
		}
		for i := range decl.values {
			value := &decl.values[i]
			short := constName(value.shown)
			if names[short] > 1 || e.taken[decl.name+short] {
				short = spelledConstName(value.shown)
			}
			name := decl.name + short
			for k := 2; e.taken[name]; k++ {
				name = fmt.Sprintf("%s%s%d", decl.name, short, k)
			}
			e.taken[name] = true
			value.name = name
		}
	}
}
