package activations

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	shipped "magicstick.dev/operator/generated/catalogs"
)

// flagName is the name of a long flag as vLLM understands it: --max_model_len and
// --max-model-len=4096 are both max-model-len. Other arguments have no name.
func flagName(arg string) (name string, joined bool) {
	long, isLong := strings.CutPrefix(arg, "--")
	if !isLong {
		return "", false
	}
	name, _, joined = strings.Cut(long, "=")
	return strings.ReplaceAll(name, "_", "-"), joined
}

// withoutFlags takes flags out of a command line, in either spelling, with their
// value joined by = or as the next argument.
func withoutFlags(args []string, names ...string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name, joined := flagName(args[i])
		if name == "" || !slices.Contains(names, name) {
			kept = append(kept, args[i])
			continue
		}
		// A separate value never looks like a flag, and a switch has none.
		if !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
		}
	}
	return kept
}

// withoutSwitch takes a flag without a value out of a command line, and its
// opposite.
func withoutSwitch(args []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		got, _ := flagName(arg)
		return got == name || got == "no-"+name
	})
}

// flagValue finds the value of a flag, the last one when it is repeated. short is
// the flag's short name, without the dash; empty when it has none.
func flagValue(args []string, name, short string) (value string, found bool) {
	for i, arg := range args {
		got, joined := flagName(arg)
		switch {
		case got == name && joined:
			_, value, _ = strings.Cut(arg, "=")
			found = true
		case short != "" && strings.HasPrefix(arg, "-"+short+"="):
			_, value, _ = strings.Cut(arg, "=")
			found = true
		case got == name || short != "" && arg == "-"+short:
			value, found = "", true
			if i+1 < len(args) {
				value = args[i+1]
			}
		}
	}
	return value, found
}

// withNumber puts a flag with a number at the end and takes every other mention
// of it away; a number of 0 leaves the command line alone.
func withNumber(args []string, name string, number int64) []string {
	if number == 0 {
		return args
	}
	return append(withoutFlags(args, name), "--"+name+"="+strconv.FormatInt(number, 10))
}

// withVision selects a kernel for the vision part: it removes whatever any value
// of the table sets, and adds what the chosen one sets. The value auto adds
// nothing.
func withVision(args []string, env map[string]string, table map[string]shipped.VisionAttention, value string) []string {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		for _, arg := range table[name].Args {
			if flag, _ := flagName(arg); flag != "" {
				args = withoutFlags(args, flag)
			}
		}
		for key := range table[name].Env {
			delete(env, key)
		}
	}
	maps.Copy(env, table[value].Env)
	return append(slices.Clone(args), table[value].Args...)
}

// fill replaces the placeholders of arguments from a catalog.
func fill(args []string, values map[string]string) []string {
	filled := make([]string, 0, len(args))
	pairs := make([]string, 0, 2*len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, "{"+name+"}", values[name])
	}
	replacer := strings.NewReplacer(pairs...)
	for _, arg := range args {
		filled = append(filled, replacer.Replace(arg))
	}
	return filled
}
