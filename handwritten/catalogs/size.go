package catalogs

import (
	"math"
	"strconv"
	"strings"
)

// ParseSizeMi reads an amount of memory as people write it in presets and
// activations (contract/appliance.md C.7): a number with the unit m, mb, mi or
// mib (1 Mi) or g, gb, gi or gib (1024 Mi) in any case; without a unit the
// number counts Mi. A fraction is cut off. Anything else is not readable.
func ParseSizeMi(text string) (int64, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	factor := 1.0
	switch text[len(number):] {
	case "":
		// Digits only: a fraction of an amount without unit is a slip of the pen.
		whole, err := strconv.ParseInt(number, 10, 64)
		return whole, err == nil && isDigits(number)
	case "m", "mb", "mi", "mib":
	case "g", "gb", "gi", "gib":
		factor = 1024
	default:
		return 0, false
	}
	number = strings.TrimSpace(number)
	whole, fraction, dotted := strings.Cut(number, ".")
	if !isDigits(whole) || dotted && !isDigits(fraction) {
		return 0, false
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || value*factor >= math.MaxInt64 {
		return 0, false
	}
	return int64(value * factor), true
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
