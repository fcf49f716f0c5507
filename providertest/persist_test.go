package providertest_test

import (
	"bufio"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pt "github.com/settle-go/settle/providertest"
)

const childEnv = "PROVIDERTEST_LEDGER"

// TestChildProcess is the provider that TestKilledProvider kills.
func TestChildProcess(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		t.Skip("runs only as the child of TestKilledProvider")
	}
	p := pt.New(&pt.Options{Path: path, KeyWindow: pt.Forever, OnApply: func(o pt.Object) { fmt.Println(o.ID) }})
	p.Script(pt.HangAfter(nil))
	fmt.Println(httptest.NewServer(p.Handler()).URL)
	select {}
}

func TestKilledProvider(t *testing.T) {
	t.Parallel()
	o := &pt.Options{Path: filepath.Join(t.TempDir(), "ledger"), KeyWindow: pt.Forever}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildProcess$")
	cmd.Env = append(os.Environ(), childEnv+"="+o.Path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	c := pt.NewClient(lines.Text(), nil)
	done := make(chan error)
	go func() {
		_, err := c.Create(t.Context(), charge("k1"))
		done <- err
	}()
	require.True(t, lines.Scan())
	require.Equal(t, "ch_1", lines.Text())
	require.NoError(t, cmd.Process.Kill()) // after the effect, before its reply
	_ = cmd.Wait()
	require.True(t, noReply(c, <-done))

	p := pt.New(o)
	assert.Equal(t, 1, p.Effects("order-17"))
	got, err := serve(t, p).Create(t.Context(), charge("k1"))
	require.NoError(t, err)
	assert.Equal(t, "ch_1", got.ID)
	assert.Equal(t, 1, p.Effects("order-17"))
	require.NoError(t, p.Close())
}
