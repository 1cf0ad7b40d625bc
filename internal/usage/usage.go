// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package usage is what the commands have in common: exit codes, and what they say about a wrong command line.
package usage

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/easyparallel/epl/internal/near"
)

// The exit codes.
const (
	Fine   = 0
	Failed = 1
	Wrong  = 2 // the command line is wrong: nothing was done
)

// ExitCodes is what --help says about them.
const ExitCodes = "Exit codes: 0 fine, 1 it failed, 2 wrong usage."

// wrong is an error about the command line.
type wrong struct{ error }

// Errorf makes an error about the command line.
func Errorf(format string, args ...any) error { return wrong{errors.Errorf(format, args...)} }

// Of makes an error one about the command line; nil stays nil.
func Of(err error) error {
	if err == nil {
		return nil
	}
	return wrong{err}
}

// Run executes the command line of a root command, and returns the exit code. An error is one message on stderr; the usage is
// not repeated, because it would push the message out of sight.
func Run(root *cobra.Command, stderr io.Writer) int {
	Prepare(root)
	started := false // before that, cobra finds errors of the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.Execute()
	if err == nil {
		return Fine
	}
	fmt.Fprintln(stderr, Message(err))
	if _, isWrong := err.(wrong); isWrong || !started {
		return Wrong
	}
	return Failed
}

// Prepare lets a command name the flag that was meant by one that does not exist.
func Prepare(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var missing *pflag.NotExistError
		if !errors.As(err, &missing) {
			return err
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if slices.Contains(names, missing.GetSpecifiedName()) {
			return err
		}
		if meant := near.Closest(missing.GetSpecifiedName(), names); meant != "" {
			return errors.Errorf("%v (did you mean --%s?)", err, meant)
		}
		return errors.Errorf("%v; %q lists the flags", err, cmd.CommandPath()+" --help")
	})
}

// Message is what to say about an error: a sentence of EPL's, also where cobra found it.
func Message(err error) string {
	message := strings.TrimRight(err.Error(), "\n")
	if strings.HasPrefix(message, "epl: ") {
		return message
	}
	// cobra has suggestions on lines of their own.
	if what, suggestions, ok := strings.Cut(message, "\n\nDid you mean this?\n"); ok {
		message = fmt.Sprintf("%s (did you mean %s?)", what, strings.Join(strings.Fields(suggestions), " or "))
	}
	return "epl: " + message
}
