package huggingface

import (
	"net/http"
	"testing"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

func FuzzInfo(f *testing.F) {
	for _, seed := range []string{
		`{"sha":"1111111111222222222233333333334444444444","pipeline_tag":"text-generation","cardData":{"license":"mit","model-index":[{"results":[{"task":{"type":"x"}}]}]}}`,
		`{"sha":1}`, `{"cardData":[],"pipeline_tag":{}}`, `{"cardData":{"license":["a","b"],"model-index":{"results":1}}}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		facts, err := parseInfo(data)
		if err != nil {
			return
		}
		declared := facts.declared()
		if len(declared.TaskTypes) > maxTasks || len(declared.License) > maxFact || len(declared.PipelineTag) > maxFact {
			t.Fatalf("unbounded: %+v", declared)
		}
		if pinned, err := facts.pin(Reference{Revision: "main"}); err == nil && !commit.MatchString(pinned) {
			t.Fatalf("pinned to %q", pinned)
		}
	})
}

func FuzzTree(f *testing.F) {
	for _, seed := range []string{
		`[{"type":"file","oid":"a94a8fe5ccb19ba61c4c0873d391e987982fbbd3","size":3,"path":"config.json"}]`,
		`[{"type":"file","oid":"x","size":130,"path":"m","lfs":{"oid":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":130,"pointerSize":1}}]`,
		`[{"type":"directory","path":"d"},{"type":"file","size":-1,"path":"x"}]`, `[{"type":"file","size":9223372036854775808}]`, `{"error":"x"}`, `null`,
	} {
		f.Add([]byte(seed), `<https://huggingface.co/api?cursor=a>; rel="next"`)
	}
	hub := New(Options{})
	f.Fuzz(func(t *testing.T, data []byte, link string) {
		_ = nextPage(http.Header{"Link": {link}})
		entries, err := parseTree(data)
		if err != nil {
			return
		}
		var files []source.File
		for _, listed := range entries {
			files = append(files, hub.file(Reference{Owner: "a", Name: "b"}, "c", listed))
		}
		files, err = source.Arrange(files)
		for i, file := range files {
			if err == nil && (source.CheckPath(file.Path) != nil || file.Size < 0 || i > 0 && files[i-1].Path >= file.Path) {
				t.Fatalf("accepted %+v", file)
			}
		}
	})
}
