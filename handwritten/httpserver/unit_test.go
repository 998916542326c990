package httpserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

func TestRevision(t *testing.T) {
	assert.Equal(t, `"abc.7"`, Revision(&metav1.ObjectMeta{UID: "abc", Generation: 7}))
	assert.Equal(t, AbsentRevision, Revision(&metav1.ObjectMeta{}))
	assert.Equal(t, AbsentRevision, Revision(nil))
	require.NoError(t, CheckRevision(`"abc.7"`, `"abc.7"`, "the module"))
	require.ErrorContains(t, CheckRevision(`"abc.6"`, `"abc.7"`, "the module"), "the module has changed")
}

func TestNotModified(t *testing.T) {
	current := WeakRevision("1", "2")
	assert.NotEqual(t, current, WeakRevision("12"), "the parts of a digest must not run together")
	for tag, want := range map[string]bool{current: true, `"x", ` + current: true, strings.TrimPrefix(current, "W/"): true, "*": true, `W/"x"`: false, "": false} {
		assert.Equal(t, want, NotModified(&tag, current), tag)
	}
	assert.False(t, NotModified(nil, current))
}

// TestPaginate: pages of any size give every item once, in order, also when items
// come and go between two pages.
func TestPaginate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count, size := rapid.IntRange(0, 40).Draw(t, "count"), int32(rapid.IntRange(1, 12).Draw(t, "size"))
		items := make([]string, count)
		for i := range items {
			items[i] = fmt.Sprintf("item-%03d", i)
		}
		removed := rapid.IntRange(-1, count-1).Draw(t, "removed")
		var seen []string
		var token *string
		list := items
		for {
			page, err := Paginate(list, func(s string) string { return s }, &size, token)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, page.Items...)
			if page.Continue == nil {
				if page.Remaining != nil {
					t.Fatal("the last page says that items remain")
				}
				break
			}
			token = page.Continue
			if removed >= 0 && removed < len(list) && len(list) == count {
				// An item that was already sent disappears.
				if removed < len(seen) {
					list = append(append([]string{}, items[:removed]...), items[removed+1:]...)
				}
			}
		}
		if strings.Join(seen, ",") != strings.Join(items, ",") {
			t.Fatalf("pages gave %v", seen)
		}
	})
	zero := int32(0)
	_, err := Paginate([]string{"a"}, func(s string) string { return s }, &zero, nil)
	require.Error(t, err)
}

func TestObjectPointer(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "spec": "/spec", "spec.env[0].name": "/spec/env/0/name", "metadata.labels[a.b/c]": "/metadata/labels/a.b~1c",
		"spec.args[2]": "/spec/args/2", "[0].x": "/0/x", "spec.x[": "/spec/x/", "a..b": "/a//b",
	} {
		assert.Equal(t, want, ObjectPointer(path), path)
	}
}

func TestInvalidObjectLeavesValuesOut(t *testing.T) {
	list := field.ErrorList{
		field.Invalid(field.NewPath("spec", "parameters").Key("token"), "hunter2", "must be short"),
		field.NotSupported(field.NewPath("spec", "engine"), "hunter2", []string{"VLLM"}),
		field.Required(field.NewPath("spec", "module"), ""),
	}
	text, err := json.Marshal(InvalidObject(list, nil).Fields())
	require.NoError(t, err)
	assert.NotContains(t, string(text), "hunter2")
	assert.Contains(t, string(text), `"field":"/spec/parameters/token","message":"must be short","rule":"FieldValueInvalid"`)
	moved := InvalidObject(list[:1], func(path string) string { return "/" + strings.TrimPrefix(ObjectPointer(path), "/spec/") })
	assert.Equal(t, "/parameters/token", moved.Fields()[0].Field)
}

func TestFromClusterKeepsNil(t *testing.T) {
	require.NoError(t, FromCluster(nil, "the module"), "a typed nil would look like an error")
}

func TestClip(t *testing.T) {
	assert.Equal(t, "aä", clip("aäö", 4))
	assert.Equal(t, "aäö", clip("aäö", 5))
}

// FuzzCheckJSON: what is accepted is one JSON object that encoding/json reads as well.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":{"b":[1,{"c":null}]}}`, `{"a":1,"a":2}`, `[]`, `{"a":`, `{} {}`, "{\"\xff\":1}", `{"a":1}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := checkJSON(data)
		if refused != nil {
			if refused.Rule == "" || refused.Message == "" || !utf8.ValidString(refused.Field) {
				t.Fatalf("refused without a reason: %+v", refused)
			}
			return
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil || object == nil {
			t.Fatalf("accepted %q, which is not an object: %v", data, err)
		}
	})
}

// FuzzObjectPointer: no path makes it panic or loop.
func FuzzObjectPointer(f *testing.F) {
	for _, seed := range []string{"spec.env[0].name", "a[", "]", "..", "[[", "a[b]c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if got := ObjectPointer(path); got != "" && got[0] != '/' {
			t.Fatalf("%q is not a JSON pointer", got)
		}
	})
}
