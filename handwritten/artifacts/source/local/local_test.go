package local_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/local"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
}

func TestResolve_folder_in_order(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "model")
	for _, name := range []string{"b.json", "a/z.bin", "a.json", "a/b/c", ".git/config", "a/.cache/x", ".DS_Store"} {
		write(t, filepath.Join(folder, name), name)
	}
	require.NoError(t, os.Symlink("b.json", filepath.Join(folder, "link.json")))
	snapshot, err := local.Resolve(folder)
	require.NoError(t, err)
	require.Equal(t, "model", snapshot.Origin)
	require.Equal(t, source.KindUpload, snapshot.Kind)
	require.Empty(t, snapshot.Revision)
	var names []string
	for _, file := range snapshot.Files {
		names = append(names, file.Path)
		want := file.Path
		if want == "link.json" {
			want = "b.json"
		}
		data, err := source.ReadFile(t.Context(), file, 100)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	require.Equal(t, []string{"a.json", "a/b/c", "a/z.bin", "b.json", "link.json"}, names)
}

func TestResolve_file(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "m.gguf")
	write(t, name, "GGUF and more")
	snapshot, err := local.Resolve(name)
	require.NoError(t, err)
	require.Len(t, snapshot.Files, 1)
	require.Equal(t, "m.gguf", snapshot.Files[0].Path)
	for _, part := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "GGUF and more"}, {0, 4, "GGUF"}, {5, 3, "and"}, {9, 100, "more"}, {13, -1, ""}} {
		body, err := snapshot.Files[0].Open(t.Context(), part.offset, part.length)
		require.NoError(t, err)
		data, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, part.want, string(data))
		require.NoError(t, body.Close())
	}
	_, err = snapshot.Files[0].Open(t.Context(), 14, -1)
	require.Error(t, err)
}

func TestResolve_refuses_what_is_not_in_the_folder(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	tests := map[string]func(folder string) error{
		"link_to_an_absolute_path":     func(folder string) error { return os.Symlink(outside, filepath.Join(folder, "x")) },
		"link_out_of_the_folder":       func(folder string) error { return os.Symlink("../../secret", filepath.Join(folder, "x")) },
		"link_to_a_folder":             func(folder string) error { return os.Symlink(".", filepath.Join(folder, "x")) },
		"broken_link":                  func(folder string) error { return os.Symlink("nowhere", filepath.Join(folder, "x")) },
		"pipe":                         func(folder string) error { return syscall.Mkfifo(filepath.Join(folder, "x"), 0o600) },
		"name_with_a_line":             func(folder string) error { return os.WriteFile(filepath.Join(folder, "a\nb"), nil, 0o600) },
		"name_that_is_no_UTF-8":        func(folder string) error { return os.WriteFile(filepath.Join(folder, "a\xff"), nil, 0o600) },
		"name_with_a_backslash_inside": func(folder string) error { return os.WriteFile(filepath.Join(folder, `a\b`), nil, 0o600) },
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, make(folder))
			_, err := local.Resolve(folder)
			require.Error(t, err)
			var known *source.Error
			require.ErrorAs(t, err, &known)
		})
	}
	_, err := local.Resolve(filepath.Join(t.TempDir(), "nothing"))
	require.ErrorIs(t, err, source.ErrNotFound)
	require.Equal(t, conditions.ModelReasonSourceNotFound, source.Reason(err))
}

func TestOpen_part_of_the_path_exchanged_for_a_link(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder := filepath.Join(top, "model")
	write(t, filepath.Join(folder, "sub/x"), "right")
	write(t, filepath.Join(top, "other/x"), "wrong")
	snapshot, err := local.Resolve(folder)
	require.NoError(t, err)
	require.NoError(t, os.Rename(filepath.Join(folder, "sub"), filepath.Join(top, "gone")))
	require.NoError(t, os.Symlink("../other", filepath.Join(folder, "sub")))
	_, err = snapshot.Files[0].Open(t.Context(), 0, -1)
	require.Error(t, err)
}

func TestRead_file_that_changes(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	for name, change := range map[string]func(name string) error{
		"truncated":   func(name string) error { return os.Truncate(name, 5000) },
		"appended":    func(name string) error { return os.WriteFile(name, append(content, 'x'), 0o600) },
		"overwritten": func(name string) error { return os.Chtimes(name, time.Now(), time.Now().Add(time.Hour)) },
		"replaced": func(name string) error {
			if err := os.WriteFile(name+".new", content, 0o600); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
		"removed": os.Remove,
	} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "_begun_", begun), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "m.bin")
				write(t, path, string(content))
				snapshot, err := local.Resolve(path)
				require.NoError(t, err)
				reader, err := source.NewReader(t.Context(), snapshot.Files[0], source.ReadOptions{Connections: 1, Buffers: source.NewBuffers(1, 100_000)})
				require.NoError(t, err)
				defer reader.Close()
				if begun {
					_, err = io.ReadFull(reader, make([]byte, 1))
					require.NoError(t, err)
				}
				require.NoError(t, change(path))
				_, err = io.Copy(io.Discard, reader)
				if begun { // with one buffer, the second range is opened after the change
					require.Error(t, err)
				}
				if err != nil && name != "removed" {
					require.ErrorIs(t, err, source.ErrChanged)
				}
			})
		}
	}
}
