package gotypes_test

// schemaCases are grouped by row; where a row names a fault of a kind, the kind's
// other members follow it.
var schemaCases = []schemaCase{
	{row: 1, name: "required int or string", schema: `
type: object
required: [port]
properties:
  port: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}`,
		types: []string{"Port intstr.IntOrString `json:\"port\"`"}, never: []string{"struct{}"},
		specs: []string{`{"port":80}`, `{"port":"http"}`, `{"port":0}`, `{"port":""}`}},
	{row: 1, name: "int or string with pattern", schema: `
type: object
properties:
  p: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true, pattern: '^[0-9]+%$', maxLength: 4}`,
		types: []string{"P *intstr.IntOrString `json:\"p,omitempty\"`"}, specs: []string{`{}`, `{"p":"50%"}`, `{"p":3}`}},
	{row: 1, name: "int or string in allOf form", schema: `
type: object
properties:
  p: {x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maxLength: 3}]}`,
		types: []string{"P *intstr.IntOrString"}, specs: []string{`{"p":"a"}`}},
	{row: 1, name: "quantity", schema: `
type: object
properties:
  q: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true, pattern: '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'}
  limits: {type: object, additionalProperties: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true, pattern: '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'}}`,
		types: []string{"Q *resource.Quantity", "Limits map[string]resource.Quantity"}, specs: []string{`{"q":"500m","limits":{"cpu":"1"}}`}},

	{row: 2, name: "flag alone", schema: `
type: object
required: [one]
properties:
  one: {x-kubernetes-int-or-string: true}
  list: {type: array, items: {x-kubernetes-int-or-string: true}}
  map: {type: object, additionalProperties: {x-kubernetes-int-or-string: true}}
  lists: {type: object, additionalProperties: {type: array, items: {x-kubernetes-int-or-string: true}}}`,
		types: []string{"One intstr.IntOrString", "List []intstr.IntOrString", "Map map[string]intstr.IntOrString", "Lists map[string][]intstr.IntOrString"},
		never: []string{"struct{}"}, specs: []string{`{"one":1,"list":[1,"a"],"map":{"x":"y","z":0},"lists":{"a":[1,""]}}`}},

	{row: 4, name: "object that preserves", schema: `
type: object
properties:
  any: {type: object, x-kubernetes-preserve-unknown-fields: true}
  resource: {type: object, x-kubernetes-preserve-unknown-fields: true, x-kubernetes-embedded-resource: true}
  values: {type: object, additionalProperties: {type: object, x-kubernetes-preserve-unknown-fields: true}}`,
		types: []string{"Any *apiextensionsv1.JSON", "Resource *runtime.RawExtension", "Values map[string]runtime.RawExtension"},
		specs: []string{`{"any":{}}`, `{"any":{"a":{"b":[1,null,""]}}}`, `{"resource":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{}}}`, `{"values":{"a":{"b":1}}}`}},
	{row: 4, name: "declared fields and preserved ones", schema: `
type: object
x-kubernetes-preserve-unknown-fields: true
maxProperties: 32
properties:
  known: {type: string}
  list: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true, maxProperties: 3, properties: {a: {type: integer}}}}
  map: {type: object, additionalProperties: {type: object, x-kubernetes-preserve-unknown-fields: true, maxProperties: 3, properties: {a: {type: integer}}}}`,
		types: []string{"Extra map[string]apiextensionsv1.JSON `json:\"-\"`", "Known *string"},
		specs: []string{`{"known":"","other":{"deep":[]},"list":[{"a":0,"b":null}],"map":{"x":{"c":""}}}`, `{"Known":"other case is another key"}`}},

	{row: 6, name: "map of any", schema: `
type: object
properties:
  plugin: {type: object, additionalProperties: {x-kubernetes-preserve-unknown-fields: true}}
  open: {type: object, additionalProperties: true}`,
		types: []string{"Plugin map[string]apiextensionsv1.JSON", "Open map[string]apiextensionsv1.JSON"},
		specs: []string{`{"plugin":{"a":1,"b":[],"c":{"d":""},"e":"x"}}`, `{"plugin":{}}`}},

	{row: 7, name: "array of any", schema: `
type: object
properties:
  items: {type: array, items: {x-kubernetes-preserve-unknown-fields: true}}
  flagged: {type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: string}}
  bare: {type: array, x-kubernetes-preserve-unknown-fields: true}
  objects: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}`,
		types: []string{"Items []apiextensionsv1.JSON", "Flagged []string", "Bare []apiextensionsv1.JSON", "Objects []apiextensionsv1.JSON"},
		specs: []string{`{"items":[1,"a",{},[]],"flagged":[""],"bare":[{"a":1},2],"objects":[{},{"a":null}]}`, `{"items":[]}`}},

	{row: 8, name: "no type", schema: `
type: object
required: [must]
properties:
  may: {x-kubernetes-preserve-unknown-fields: true}
  must: {x-kubernetes-preserve-unknown-fields: true}`,
		types: []string{"May *apiextensionsv1.JSON `json:\"may,omitempty\"`", "Must apiextensionsv1.JSON `json:\"must\"`"},
		specs: []string{`{"must":0}`, `{"must":{"a":[]},"may":false}`, `{"must":"","may":""}`}},
	{row: 8, name: "no type and no flag", schema: `{type: object, properties: {a: {description: nothing else}}}`, refused: `.properties[a]: has no type`},

	{row: 9, name: "nested maps", schema: `
type: object
properties:
  maps: {type: object, additionalProperties: {type: object, additionalProperties: {type: string}}}
  structs: {type: object, additionalProperties: {type: array, items: {type: object, properties: {a: {type: string}}}}}
  numbers: {type: object, additionalProperties: {type: number}}
  own: {type: object, additionalProperties: {type: object, properties: {labels: {type: object, additionalProperties: {type: string}}}}}`,
		types: []string{"Maps map[string]map[string]string", "Structs map[string][]CaseSpecStructsValueItem", "Numbers map[string]float64", "Own map[string]CaseSpecOwnValue", "Labels map[string]string"},
		specs: []string{`{"maps":{"a":{},"b":{"c":""}},"structs":{"a":[{},{"a":"x"}]},"numbers":{"a":0,"b":1.5},"own":{"a":{"labels":{}},"b":{}}}`}},
	{row: 9, name: "constrained map values", schema: `
type: object
properties:
  env: {type: object, additionalProperties: {type: string, maxLength: 4096}}
  counts: {type: object, additionalProperties: {type: integer, minimum: 1}}
  deep: {type: object, additionalProperties: {type: object, maxProperties: 2, additionalProperties: {type: array, maxItems: 3, items: {type: string, pattern: ^a}}}}`,
		types: []string{"type CaseSpecEnvValue = string", "Env map[string]CaseSpecEnvValue", "type CaseSpecCountsValue int64"},
		specs: []string{`{"env":{"a":""},"counts":{"b":1},"deep":{"x":{"y":["a"]},"z":{}}}`}},

	{row: 10, name: "array of array of objects", schema: `
type: object
properties:
  grid: {type: array, items: {type: array, items: {type: object, properties: {x: {type: integer}}}}}`,
		types: []string{"Grid [][]CaseSpecGridItemItem", "type CaseSpecGridItemItem struct {"}, specs: []string{`{"grid":[[],[{},{"x":0}]]}`}},
	{row: 10, name: "bounded inner array", schema: `
type: object
properties:
  grid: {type: array, maxItems: 2, items: {type: array, maxItems: 3, items: {type: integer, minimum: 0}}}`,
		types: []string{"Grid []CaseSpecGridItem", "type CaseSpecGridItem []int64"}, specs: []string{`{"grid":[[0],[]]}`}},

	{row: 11, name: "array without items", schema: `{type: object, properties: {a: {type: array}}}`, refused: `.properties[a]: is an array without items`},
	{row: 11, name: "array with empty items", schema: `{type: object, properties: {a: {type: array, items: {}}}}`, refused: `.properties[a].items: has no type`},

	{row: 13, name: "string or array of string", schema: `
type: object
properties:
  ambassador_id: {x-kubernetes-preserve-unknown-fields: true, oneOf: [{type: string}, {type: array}], items: {type: string}}`,
		types: []string{"AmbassadorID *apiextensionsv1.JSON"}, specs: []string{`{"ambassador_id":"one"}`, `{"ambassador_id":["one","two"]}`}},

	// oneOf stays oneOf: both fields are in the struct, and the keyword goes with them
	// in a marker. A CEL rule "exactly one" in its place would say the same to the API
	// server, but it would be a rule that the schema does not have: the way back would
	// give another CRD than the one that went in. A CRD that wants the rule has it, as
	// in the case after this one.
	{row: 15, name: "one of sibling required sets", schema: `
type: object
properties:
  inline: {type: string}
  secret: {type: object, properties: {name: {type: string}}}
oneOf: [{required: [inline]}, {required: [secret]}]`,
		types: []string{"Inline *string", "Secret *CaseSpecSecret", `+specgen:keywords={"oneOf":[{"required":["inline"]},{"required":["secret"]}]}`},
		specs: []string{`{"inline":""}`, `{"secret":{}}`}},
	{row: 15, name: "exactly one by CEL", schema: `
type: object
properties: {a: {type: string}, b: {type: string}}
x-kubernetes-validations: [{rule: "has(self.a) != has(self.b)", message: "exactly one of a and b is set", reason: FieldValueInvalid}]`,
		types: []string{`+kubebuilder:validation:XValidation:rule="has(self.a) != has(self.b)",message="exactly one of a and b is set",reason="FieldValueInvalid"`},
		specs: []string{`{"a":"x"}`}},

	{row: 16, name: "nested defaults", schema: `
type: object
default: {list: [{a: 1}], empty: {}}
properties:
  list: {type: array, default: [{a: 2}, {}], items: {type: object, default: {}, properties: {a: {type: integer, default: 3}}}}
  empty: {type: object, default: {}, properties: {ready: {type: boolean, default: false}}}
  text: {type: string, default: "it's ''so'' and ` + "``" + `thus` + "``" + `"}
  big: {type: integer, format: int64, default: 9007199254740993}
  none: {type: string, nullable: true, default: null}
  map: {type: object, additionalProperties: {type: string}, default: {a: b}}`,
		types: []string{`+default={"empty":{},"list":[{"a":1}]}`, `+default=[{"a":2},{}]`, `+default=false`}, specs: []string{`{}`, `{"list":[],"empty":{"ready":false},"big":9007199254740993}`}},

	{row: 18, name: "enum values", schema: `
type: object
properties:
  odd: {type: string, enum: ["bool:true", "bool:false", "a/b", "a b", "a.b", "", "-", "*", "x\"y'z"]}
  code: {type: integer, enum: [301, 302, 307, 308, -1]}
  small: {type: integer, format: int32, enum: [0, 1]}
  list: {type: array, items: {type: string, enum: ["on", "off"]}}`,
		types: []string{"CaseSpecOddBoolTrue CaseSpecOdd = \"bool:true\"", "CaseSpecOddASlashB CaseSpecOdd = \"a/b\"", "CaseSpecOddASpaceB CaseSpecOdd = \"a b\"", "CaseSpecOddEmpty CaseSpecOdd = \"\"",
			"type CaseSpecCode int64", "CaseSpecCode301 CaseSpecCode = 301", "CaseSpecCodeMinus1 CaseSpecCode = -1", "type CaseSpecSmall int32", "List []CaseSpecListItem"},
		specs: []string{`{"odd":"bool:true","code":308,"small":0,"list":["on","off"]}`, `{"odd":""}`}},
	{row: 18, name: "mixed enum", schema: `
type: object
properties:
  a: {x-kubernetes-preserve-unknown-fields: true, enum: [1, "one", true, null]}
  b: {type: string, nullable: true, enum: [x, null]}
  c: {type: number, enum: [0.5, 1]}`,
		types: []string{"A *apiextensionsv1.JSON", "B *string", "C float64"}, never: []string{"struct{}"}, specs: []string{`{"a":"one","b":null,"c":0.5}`, `{"b":"x"}`}},

	{row: 19, name: "boolean enum", schema: `
type: object
required: [must]
properties: {must: {type: boolean, enum: [true]}, may: {type: boolean, enum: [true]}}`,
		types: []string{"Must bool `json:\"must\"`", "May bool `json:\"may,omitempty\"`", "+kubebuilder:validation:Enum={true}"}, specs: []string{`{"must":true}`, `{"must":true,"may":true}`}},

	{row: 21, name: "property names", schema: `
type: object
properties:
  foo-bar: {type: string}
  fooBar: {type: string}
  foo.bar: {type: string}
  $ref: {type: string}
  3scale: {type: string}
  "-": {type: string}
  _a: {type: string}
  größe: {type: string}
  "中": {type: string}`,
		types: []string{"`json:\"foo-bar,omitempty\"`", "`json:\"-,omitempty\"`", "X3scale *string `json:\"3scale,omitempty\"`", "Ref *string `json:\"$ref,omitempty\"`", "Größe *string"},
		specs: []string{`{"foo-bar":"1","fooBar":"2","foo.bar":"3","$ref":"4","3scale":"5","-":"6","_a":"7","größe":"8","中":"9"}`}},
	{row: 21, name: "a property name that no tag can hold", schema: "{type: object, properties: {'a,b': {type: string}}}", refused: `.properties[a,b]: the property name "a,b" holds ','`},

	{row: 23, name: "identical and similar structs", schema: `
type: object
properties:
  relabelings: {type: array, items: {type: object, properties: {action: {type: string, enum: [keep, drop]}, regex: {type: string}}}}
  metricRelabelings: {type: array, items: {type: object, properties: {action: {type: string, enum: [keep, drop]}, regex: {type: string}}}}
  otherRelabelings: {type: array, items: {type: object, properties: {action: {type: string, enum: [Keep, keep]}, regex: {type: string}}}}
  outer: {type: object, properties: {relabelings: {type: array, items: {type: object, properties: {other: {type: string}}}}}}`,
		types: []string{"MetricRelabelings []CaseSpecMetricRelabelingsItem", "Relabelings []CaseSpecMetricRelabelingsItem", "OtherRelabelings []CaseSpecOtherRelabelingsItem", "Relabelings []CaseSpecOuterRelabelingsItem", "CaseSpecOtherRelabelingsItemActionKeep2"},
		specs: []string{`{"relabelings":[{"action":"keep"}],"otherRelabelings":[{"action":"Keep"}]}`}},

	{row: 24, name: "initialisms", schema: `
type: object
properties:
  openAPIV3Schema: {type: string}
  httpRoute: {type: string}
  nodeUid: {type: string}
  podIPs: {type: string}
  kvCacheType: {type: string}
  localURL: {type: string}`,
		types: []string{"OpenAPIV3Schema *string `json:\"openAPIV3Schema,omitempty\"`", "HTTPRoute *string", "NodeUID *string", "PodIPs *string", "KVCacheType *string", "LocalURL *string"}, specs: []string{`{"openAPIV3Schema":"","podIPs":"x"}`}},

	{row: 25, name: "go words", schema: `
type: object
properties:
  type: {type: string}
  func: {type: object, properties: {range: {type: string, enum: [var, const]}}}
  interface: {type: string}
  string: {type: string, enum: [string]}
  error: {type: object, properties: {nil: {type: boolean}}}
  deepCopy: {type: string}
  deepCopyInto: {type: string}
  marshalJSON: {type: string}
  extra: {type: string}
  nulls: {type: string, nullable: true}`,
		types: []string{"Type *string", "DeepCopyField *string", "DeepCopyIntoField *string", "MarshalJSONField *string", "ExtraField *string", "NullsField *string"},
		specs: []string{`{"type":"a","func":{"range":"var"},"interface":"b","string":"string","error":{"nil":false},"deepCopy":"","deepCopyInto":"","marshalJSON":"","extra":"","nulls":null}`}},

	{row: 26, name: "descriptions", schema: `
type: object
description: "Ends a comment */ and ` + "`ticks` and ``two``" + ` and ''quotes''.\n\n+kubebuilder:validation:Enum=injected\n+optional\nTODO do\n---\nafter the line"
properties:
  a: {type: string, description: "+optional starts as a marker"}
  b: {type: string, description: "---"}
  c: {type: string, description: "TODO"}
  d: {type: string, description: "//go:embed secret\n//nolint\n/* open"}
  e: {type: string, description: "Ünïcode 中文 🚀 https://example.com/?a=b&c=d#e \u202eevil\u202c \a bell\r\nnext"}
  f: {type: string, description: "- one\n- two\n\n    code\n\n1. three"}
  g: {type: string, description: "# Heading\n\n[link]: https://example.com"}
  h: {type: string, description: "` + longText + `"}`,
		never: []string{"\n// +kubebuilder:validation:Enum=injected", "\u202e", "\a"}, specs: []string{`{"a":"x"}`}},

	{row: 28, name: "embedded object with metadata", schema: `
type: object
properties:
  template:
    type: object
    properties:
      metadata: {type: object, properties: {labels: {type: object, additionalProperties: {type: string}}, annotations: {type: object, additionalProperties: {type: string}}}}
  resource:
    type: object
    x-kubernetes-embedded-resource: true
    properties:
      metadata: {type: object}
      spec: {type: object, properties: {a: {type: string}}}
  kept: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`,
		types: []string{"Labels map[string]string", "Metadata *metav1.ObjectMeta", "Kept *runtime.RawExtension"},
		specs: []string{`{"template":{"metadata":{"labels":{"a":"b"},"annotations":{}}}}`, `{"resource":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"}},"spec":{"a":""}}}`,
			`{"kept":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}}`}},

	{row: 34, name: "nullable everywhere", schema: `
type: object
required: [r, rn, rnList]
properties:
  r: {type: integer}
  rn: {type: integer, nullable: true}
  rnList: {type: array, nullable: true, items: {type: string}}
  o: {type: integer}
  "on": {type: integer, nullable: true}
  onStruct: {type: object, nullable: true, properties: {a: {type: string, nullable: true}}}
  onList: {type: array, nullable: true, items: {type: string, nullable: true}}
  onAny: {x-kubernetes-preserve-unknown-fields: true, nullable: true}
  onTime: {type: string, format: date-time, nullable: true}
  times: {type: array, items: {type: string, format: date-time, nullable: true}}
  values: {type: object, additionalProperties: {type: string, nullable: true}}
  objects: {type: object, additionalProperties: {type: object, nullable: true, properties: {a: {type: string}}}}
  anys: {type: object, additionalProperties: {x-kubernetes-preserve-unknown-fields: true, nullable: true}}`,
		types: []string{"R int64 `json:\"r\"`", "Rn *int64 `json:\"rn\"`", "O *int64 `json:\"o,omitempty\"`", "On *int64 `json:\"on,omitempty\"`", "Nulls []string `json:\"-\"`", "Values map[string]*CaseSpecValuesValue", "Objects map[string]*CaseSpecObjectsValue"},
		specs: []string{`{"r":0,"rn":null,"rnList":null}`, `{"r":0,"rn":0,"rnList":[],"o":0,"on":0}`, `{"r":0,"rn":1,"rnList":[""],"on":null,"onStruct":null,"onList":null,"onAny":null,"onTime":null}`,
			`{"r":0,"rn":1,"rnList":[],"onStruct":{"a":null},"onList":[null,""],"times":[null,"2024-01-02T03:04:05Z"],"values":{"a":null,"b":""},"objects":{"a":null,"b":{}},"anys":{"a":null,"b":1}}`}},

	{row: 0, name: "known types", schema: `
type: object
required: [at]
properties:
  at: {type: string, format: date-time}
  until: {type: string, format: date-time}
  every: {type: string, format: duration, maxLength: 32}
  times: {type: object, additionalProperties: {type: string, format: date-time}}
  conditions:
    type: array
    x-kubernetes-list-type: map
    x-kubernetes-list-map-keys: [type]
    items:
      type: object
      description: Own words.
      required: [lastTransitionTime, message, reason, status, type]
      properties:
        lastTransitionTime: {type: string, format: date-time, description: Other words.}
        message: {type: string, maxLength: 32768}
        observedGeneration: {type: integer, format: int64, minimum: 0}
        reason: {type: string, maxLength: 1024, minLength: 1, pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}
        status: {type: string, enum: ["True", "False", Unknown]}
        type: {type: string, maxLength: 316, pattern: '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'}`,
		types: []string{"At metav1.Time `json:\"at\"`", "Until *metav1.Time", "Every *metav1.Duration", "Times map[string]metav1.Time", "Conditions []metav1.Condition"},
		specs: []string{`{"at":"2024-01-02T03:04:05Z","every":"1m0s","conditions":[{"type":"Ready","status":"True","reason":"Fine","message":"","lastTransitionTime":"2024-01-02T03:04:05Z"}]}`}},
	{row: 0, name: "keywords that markers refuse", schema: `
type: object
properties:
  list: {type: array, maxLength: 3, pattern: ^a, items: {type: string, maxItems: 3, not: {pattern: ^b}}}
  number: {x-kubernetes-int-or-string: true, minimum: 1, maximum: 9}
  flag: {type: boolean, maxLength: 3}
  fraction: {type: integer, minimum: 0.5, multipleOf: 1.5}
  text: {type: string, allOf: [{enum: [a, b]}, {enum: [b, c]}], anyOf: [{minLength: 1}]}
  loose: {type: object, required: [undeclared], properties: {a: {type: string}}}`,
		types: []string{`+specgen:keywords={"maxLength":3,"pattern":"^a"}`, `+specgen:keywords=items {"maxItems":3,"not":{"pattern":"^b"}}`}, specs: []string{`{"list":[]}`}},
	{row: 0, name: "zero values that the schema refuses", schema: `
type: object
properties:
  a: {type: string, minLength: 1}
  b: {type: string, pattern: "^x"}
  c: {type: integer, minimum: 1}
  d: {type: string, enum: [x, z]}
  e: {type: integer, minimum: 0}
  f: {type: number, minimum: 0, exclusiveMinimum: true}
  g: {type: string, pattern: "^x*$"}
  h: {type: string, enum: ["", z]}
  i: {type: integer, maximum: -1}`,
		types: []string{"A string `json:\"a,omitempty\"`", "B string", "C int64", "D CaseSpecD `", "E *int64", "F float64", "G *string", "H *CaseSpecH", "I int64"},
		specs: []string{`{}`, `{"e":0,"g":"","h":""}`, `{"a":"a","b":"x","c":1,"d":"x","f":0.1,"i":-1}`}},
	{row: 0, name: "no content at all", schema: `{type: object, properties: {upload: {type: object}, list: {type: array, items: {type: object}}}}`,
		types: []string{"Upload *CaseSpecListItem", "type CaseSpecListItem struct { }"}, specs: []string{`{"upload":{}}`, `{"list":[{}]}`, `{}`}},
	{row: 0, name: "both kinds of content", schema: `{type: object, properties: {a: {type: object, properties: {b: {type: string}}, additionalProperties: {type: string}}}}`,
		refused: `.properties[a]: has both properties and additionalProperties`},
	{row: 0, name: "unknown type", schema: `{type: object, properties: {a: {type: array, items: {type: text}}}}`, refused: `.properties[a].items: type "text" is unknown`},
}

const longText = "A long sentence that goes on and on until it has to be broken into lines somewhere near the right margin of the page. " +
	"Averyveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryverylongword and the rest of it."
