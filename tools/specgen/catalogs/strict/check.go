package strict

// Check validates data, a JSON document called catalog in messages, against the
// JSON Schema document schema.
func Check(catalog string, schema, data []byte) error {
	compiled, err := compileSchema(schema)
	if err != nil {
		return err
	}
	return parse(catalog, compiled, data, nil)
}
