package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lineageEnv makes the test binary a parent or a child in the test below.
const lineageEnv = "MAGICSTICK_TEST_LINEAGE"

func TestMain(m *testing.M) {
	switch os.Getenv(lineageEnv) {
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), lineageEnv+"=child")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			panic(err)
		}
		_ = child.Wait()
	case "child":
		ctx, cancel := whileParentLives(context.Background())
		defer cancel()
		os.Stdout.WriteString("running " + strconv.Itoa(os.Getpid()) + "\n")
		select {
		case <-ctx.Done():
			os.Stdout.WriteString("parent gone\n")
		case <-time.After(time.Minute):
			os.Stdout.WriteString("never noticed\n")
		}
	default:
		os.Exit(m.Run())
	}
}

func TestDev_ends_with_a_parent_that_is_killed(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), lineageEnv+"=parent")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	parent.Stdout = writer
	require.NoError(t, parent.Start())
	require.NoError(t, writer.Close())
	lines := bufio.NewReader(reader)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "running "), line)
	// Longer than one interval: a parent that lives ends nobody.
	require.NoError(t, reader.SetReadDeadline(time.Now().Add(3*parentInterval/2)))
	_, err = lines.ReadString('\n')
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.NoError(t, reader.SetReadDeadline(time.Now().Add(10*time.Second)))
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "parent gone\n", line)
}

func TestDev_plays_nothing_on_the_cluster_of_a_kubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nowhere"))
	_, _, err := execute(t, "", "dev", "--once")
	require.ErrorContains(t, err, "nowhere", "stand-ins, the default, are no obstacle")
	_, _, err = execute(t, "", "dev", "--once", "--stand-ins=false")
	require.ErrorContains(t, err, "nowhere")
	_, _, err = execute(t, "", "dev", "--once", "--stand-ins")
	require.ErrorContains(t, err, "stand-ins only work on the built-in control plane")
}
