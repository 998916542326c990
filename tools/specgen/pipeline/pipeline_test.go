package pipeline

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

func TestRun(t *testing.T) {
	var mutex sync.Mutex
	var order []string
	note := func(name string) func(context.Context, *workspace.Workspace) error {
		return func(context.Context, *workspace.Workspace) error {
			mutex.Lock()
			defer mutex.Unlock()
			order = append(order, name)
			return nil
		}
	}
	t.Run("a_step_waits_for_those_it_reads_from", func(t *testing.T) {
		for range 20 {
			order = nil
			var out bytes.Buffer
			require.NoError(t, Run(t.Context(), nil, []Step{
				{Name: "types", Generate: note("types")},
				{Name: "docs", Generate: note("docs")},
				{Name: "clients", After: []string{"types"}, Generate: note("clients")},
				{Name: "last", After: []string{"clients", "docs"}, Generate: note("last")},
			}, &out))
			require.Len(t, order, 4)
			require.Equal(t, "last", order[3])
			at := map[string]int{}
			for i, name := range order {
				at[name] = i
			}
			require.Less(t, at["types"], at["clients"])
			require.Contains(t, out.String(), "clients")
		}
	})
	t.Run("an_error_stops_what_has_not_begun", func(t *testing.T) {
		order = nil
		broken := errors.New("spec/crds/x.yaml: bad")
		err := Run(t.Context(), nil, []Step{
			{Name: "types", Generate: func(context.Context, *workspace.Workspace) error { return broken }},
			{Name: "clients", After: []string{"types"}, Generate: note("clients")},
		}, &bytes.Buffer{})
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, "types: spec/crds/x.yaml")
		require.Empty(t, order)
	})
	t.Run("an_unknown_predecessor_is_refused", func(t *testing.T) {
		err := Run(t.Context(), nil, []Step{{Name: "a", After: []string{"b"}, Generate: note("a")}}, &bytes.Buffer{})
		require.ErrorContains(t, err, `a comes after "b"`)
	})
	t.Run("a_name_may_appear_once", func(t *testing.T) {
		err := Run(t.Context(), nil, []Step{{Name: "a", Generate: note("a")}, {Name: "a", Generate: note("a")}}, &bytes.Buffer{})
		require.ErrorContains(t, err, `"a" appears twice`)
	})
}
