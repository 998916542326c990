package estimates

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// fixture reads a folder of testdata.
func fixture(t testing.TB, name string) *Model {
	t.Helper()
	model, err := ReadModel(fixtureFiles(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func fixtureFiles(t testing.TB, name string) Files {
	t.Helper()
	read := func(file string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", name, file))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return data
	}
	files := Files{Config: read("config.json"), Index: read("model.safetensors.index.json")}
	if answer := read("api.json"); answer != nil {
		totals, err := ReadTotals(answer)
		if err != nil {
			t.Fatal(err)
		}
		files.Totals = totals
	}
	return files
}

// config writes a config.json of a small dense model with some values changed;
// nil takes a value away.
func config(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	values := map[string]any{
		"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
		"num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 8192,
	}
	for name, value := range changes {
		if value == nil {
			delete(values, name)
			continue
		}
		values[name] = value
	}
	data, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
