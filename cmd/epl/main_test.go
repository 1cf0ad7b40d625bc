package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// epl runs one command line as a shell would.
func epl(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// clearEnvironment hides the configuration of whoever runs the tests.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "EPL_") {
			t.Setenv(name, "")
		}
	}
}

func TestTheVersionIsPrinted(t *testing.T) {
	status, stdout, stderr := epl(t, "--version")
	if status != 0 || stdout != "epl 0.1.0-dev\n" || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestHelpNamesTheSubcommands(t *testing.T) {
	status, stdout, stderr := epl(t)
	if status != 0 || !strings.Contains(stdout, "  config ") || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestAnUnknownSubcommandIsOneMessageAndStatusOne(t *testing.T) {
	status, stdout, stderr := epl(t, "confg")
	const want = "epl: unknown command \"confg\" for \"epl\"\n\nDid you mean this?\n\tconfig\n\n"
	if status != 1 || stdout != "" || stderr != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}
