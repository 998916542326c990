// Package gotypestest runs generated types: it compiles them into a program and asks
// that program to decode and encode objects, and it makes random valid objects and
// random structural schemas to do that with. Only tests import it.
package gotypestest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// RepoDir is the root of the repository: the first folder upwards with a go.mod.
func RepoDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("looking for the root of the repository: no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// CorpusDir is the folder with real-world CRDs beside the repository; the test is
// skipped where it is absent, because the CRDs are not part of the project.
func CorpusDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(RepoDir(t), "..", "shared", "corpus", "crds")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the corpus of real-world CRDs is not beside the repository (%s)", dir)
	}
	return dir
}

// ByGroup lays generated packages out by their full group.
func ByGroup(group, version string) string {
	if group == "" {
		group = "no-group"
	}
	return path.Join(group, version)
}

// Codec is a running program with the generated types of some definitions.
type Codec struct {
	input  *bufio.Writer
	output *bufio.Reader
}

// program decodes with the rules of the Kubernetes clients (case-sensitive keys) and
// encodes with encoding/json, one JSON line per object.
const program = `package main

import (
	"bufio"
	"encoding/json"
	"os"

	utiljson "k8s.io/apimachinery/pkg/util/json"
%s)

var kinds = map[string]func() any{
%s}

type answer struct {
	Object json.RawMessage
	Error  string
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var request struct {
			Kind   string
			Object json.RawMessage
		}
		var reply answer
		if err := json.Unmarshal(line, &request); err != nil {
			reply.Error = err.Error()
		} else if object := kinds[request.Kind](); object == nil {
			reply.Error = "unknown kind " + request.Kind
		} else if err := utiljson.Unmarshal(request.Object, object); err != nil {
			reply.Error = "decoding: " + err.Error()
		} else if data, err := json.Marshal(object); err != nil {
			reply.Error = "encoding: " + err.Error()
		} else {
			reply.Object = data
		}
		if err := out.Encode(reply); err != nil {
			return
		}
	}
}
`

// Build compiles the types of the definitions and starts the program; it ends with
// the test.
func Build(t testing.TB, definitions []*crd.Definition) *Codec {
	t.Helper()
	files, err := gotypes.Emit(definitions, ByGroup)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := workspace.New(RepoDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	for name, data := range files {
		if err := ws.Write(name, data); err != nil {
			t.Fatal(err)
		}
	}
	aliases := map[string]string{}
	var imports, kinds []string
	for _, d := range definitions {
		for _, version := range d.CRD.Spec.Versions {
			dir := ByGroup(d.CRD.Spec.Group, version.Name)
			if aliases[dir] == "" {
				aliases[dir] = fmt.Sprintf("p%d", len(aliases))
				imports = append(imports, fmt.Sprintf("\t%s %q\n", aliases[dir], workspace.Module+"/generated/"+dir))
			}
			kinds = append(kinds, fmt.Sprintf("\t%q: func() any { return new(%s.%s) },\n", key(d, version.Name), aliases[dir], gotypes.KindName(d.CRD.Spec.Names.Kind)))
		}
	}
	sort.Strings(imports)
	sort.Strings(kinds)
	source := fmt.Sprintf(program, strings.Join(imports, ""), strings.Join(kinds, ""))
	if err := ws.Write("program/main.go", []byte(source)); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(ws.ModuleDir, "program.bin")
	build := exec.Command("go", "build", "-o", binary, "./generated/program")
	build.Dir = ws.ModuleDir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the generated types do not compile: %v\n%s", err, head(out))
	}
	run := exec.Command(binary)
	run.Stderr = os.Stderr
	stdin, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = run.Wait()
	})
	return &Codec{input: bufio.NewWriter(stdin), output: bufio.NewReaderSize(stdout, 1<<20)}
}

func head(out []byte) []byte {
	if len(out) > 4000 {
		return out[:4000]
	}
	return out
}

func key(d *crd.Definition, version string) string { return d.Name() + " " + version }

// Through decodes object into the type of the definition's version and encodes it.
func (c *Codec) Through(d *crd.Definition, version string, object []byte) ([]byte, error) {
	request, err := json.Marshal(map[string]any{"Kind": key(d, version), "Object": json.RawMessage(object)})
	if err != nil {
		return nil, err
	}
	if _, err := c.input.Write(append(request, '\n')); err != nil {
		return nil, err
	}
	if err := c.input.Flush(); err != nil {
		return nil, err
	}
	line, err := c.output.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the program with the generated types ended: %w", err)
	}
	var reply struct {
		Object json.RawMessage
		Error  string
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("%s", reply.Error)
	}
	return reply.Object, nil
}

// Difference compares two objects as JSON values and describes the first place where
// they differ; it is empty when they are equal. There are two allowances: for the status
// at the root empty and absent mean the same, and metav1.Condition takes
// observedGeneration 0, which no object has, for absent.
func Difference(want, got []byte) string {
	return difference(canonical(want), canonical(got), "")
}

func difference(want, got any, at string) string {
	wantMap, ok := want.(map[string]any)
	gotMap, ok2 := got.(map[string]any)
	if ok && ok2 {
		for key := range wantMap {
			if _, kept := gotMap[key]; !kept {
				return fmt.Sprintf("%s.%s was lost: %v", at, key, wantMap[key])
			}
		}
		for key := range gotMap {
			if _, given := wantMap[key]; !given {
				return fmt.Sprintf("%s.%s was invented: %v", at, key, gotMap[key])
			}
			if text := difference(wantMap[key], gotMap[key], at+"."+key); text != "" {
				return text
			}
		}
		return ""
	}
	wantList, ok := want.([]any)
	gotList, ok2 := got.([]any)
	if ok && ok2 && len(wantList) == len(gotList) {
		for i := range wantList {
			if text := difference(wantList[i], gotList[i], fmt.Sprintf("%s[%d]", at, i)); text != "" {
				return text
			}
		}
		return ""
	}
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return fmt.Sprintf("%s: %#v became %#v", at, want, got)
}

func canonical(data []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err.Error()
	}
	if object, ok := value.(map[string]any); ok {
		if status, ok := object["status"].(map[string]any); ok && len(status) == 0 {
			delete(object, "status")
		}
	}
	return numbers(value)
}

// numbers brings 1, 1.0 and 1e0 to one text.
func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return v
		}
		f, err := v.Float64()
		if err != nil {
			return v
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		_, changed := v["lastTransitionTime"]
		_, reason := v["reason"]
		if changed && reason && v["observedGeneration"] == json.Number("0") {
			delete(v, "observedGeneration")
		}
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return value
}
