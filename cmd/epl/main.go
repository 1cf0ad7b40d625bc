// Command epl looks at what EPL would do: its configuration, plans and records. It never trains.
//
//	epl config                              every configuration key, its value and where the value came from
//	epl config --changed                    only the keys that are not at their default
//	epl config --set zero.level=v1 --json   with values as code would set them, for other programs to read
//	epl config pipeline.strategy            one key explained
//	epl plan --devices 8 -- go run .        what it would do with a program on 8 devices, and the memory that takes
//	epl trace trace.json -o trace.html      what the devices did in a step, as a picture
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/version"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit status. An error is one message on stderr; the usage is not
// repeated, because it would push the message out of sight.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		message := err.Error()
		if !strings.HasPrefix(message, "epl: ") { // from cobra, about flags and arguments
			message = "epl: " + message
		}
		fmt.Fprintln(stderr, message)
		return 1
	}
	return 0
}

// newRootCommand lists the subcommands; each has a file of its own.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "epl",
		Short:         "Look at what Easy Parallel Library would do with a training program",
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("epl {{.Version}}\n")
	root.AddCommand(
		newConfigCommand(),
		newPlanCommand(),
		newTraceCommand(),
	)
	return root
}
