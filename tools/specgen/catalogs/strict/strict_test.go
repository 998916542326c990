package strict

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const schema = `{
	"type": "object", "additionalProperties": false, "required": ["a"],
	"dependentRequired": {"b": ["c"]},
	"properties": {
		"a": {"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true,
			"items": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]*$"}},
		"b": {"type": "integer", "minimum": 2, "maximum": 4},
		"c": {"enum": ["x", "y"]},
		"d": {"type": "object", "minProperties": 1, "maxProperties": 2, "propertyNames": {"pattern": "^k"}, "additionalProperties": {"type": "boolean"}},
		"e": false
	}
}`

func TestCheckNamesPathRuleAndValue(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":["ab"]}`:                "",
		`{"a":["ab"],"b":3,"c":"x"}`:  "",
		`{}`:                          "a: required",
		`{"a":"ab"}`:                  `a: must be of type array, got "ab"`,
		`{"a":[]}`:                    `a: must have at least 1 items, got []`,
		`{"a":["ab","cd","ef"]}`:      `a: must have at most 2 items, got ["ab","cd","ef"]`,
		`{"a":["ab","ab"]}`:           `a: must not repeat an item, got ["ab","ab"]`,
		`{"a":["a"]}`:                 `a[0]: must have at least 2 characters, got "a"`,
		`{"a":["abcde"]}`:             `a[0]: must have at most 4 characters, got "abcde"`,
		`{"a":["ab","A<"]}`:           `a[1]: must match the pattern ^[a-z]*$, got "A<"`,
		`{"a":["ab"],"b":1}`:          `b: must be at least 2, got 1; c: required together with b`,
		`{"a":["ab"],"c":"x","b":5}`:  `b: must be at most 4, got 5`,
		`{"a":["ab"],"c":"z"}`:        `c: must be one of x, y, got "z"`,
		`{"a":["ab"],"d":{}}`:         `d: must have at least 1 entries, got {}`,
		`{"a":["ab"],"d":{"k.1":5}}`:  `d["k.1"]: must be of type boolean, got 5`,
		`{"a":["ab"],"d":{"x":true}}`: `d: key must match the pattern ^k, got "x"`,
		`{"a":["ab"],"e":1}`:          `e: not allowed here, got 1`,
		`{"a":["ab"],"f":{"g":1}}`:    `f: unknown field, got {"g":1}`,
		`null`:                        `(document): must be of type object, got null`,
	} {
		t.Run(text, func(t *testing.T) {
			err := Check("test catalog", []byte(schema), []byte(text))
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "checking the test catalog: "+want)
		})
	}
}

func TestCheckRefusesWhatIsNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "line 1: unexpected end of JSON input",
		"{\n\n \"a\": nope}":                   "line 3: invalid character 'o' in literal null",
		`{"a":["ab"]} {}`:                      "after top-level value",
		`{"a":["ab"],"a":["cd"]}`:              `duplicate field "a"`,
		`{"a":["ab"],"d":{"k":true,"k":true}}`: `duplicate field "d.k"`,
		"{\"a\":[\"\xff\"]}":                   "not valid UTF-8",
		strings.Repeat(" ", MaxBytes+1):        "more than the limit",
		strings.Repeat("[", 20000):             "reading the test catalog",
	} {
		require.ErrorContains(t, Check("test catalog", []byte(schema), []byte(text)), want)
	}
}

func TestErrorStaysShort(t *testing.T) {
	text := `{"a":["ab"],` + strings.TrimSuffix(strings.Repeat(`"?":"`+strings.Repeat("é", 200)+`",`, 1), ",") + `}`
	err := Check("test catalog", []byte(schema), []byte(text))
	require.ErrorContains(t, err, "ééé...")
	assert.Less(t, len(err.Error()), 200)

	var many strings.Builder
	for letter := 'A'; letter < 'A'+15; letter++ {
		many.WriteString(`,"` + string(letter) + `":1`)
	}
	err = Check("test catalog", []byte(schema), []byte(`{"a":["ab"]`+many.String()+`}`))
	require.ErrorContains(t, err, "; and 5 more")
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Len(t, invalid.Violations, 15)
}

func TestCheckRefusesASchemaThatIsNone(t *testing.T) {
	require.ErrorContains(t, Check("test catalog", []byte(`{"type":"objekt"}`), []byte(`{}`)), "compiling the schema")
	require.ErrorContains(t, Check("test catalog", []byte(`{`), []byte(`{}`)), "reading the schema")
}
