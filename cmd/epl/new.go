// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/launch"
)

// starter has the files that "epl new" writes, as templates.
//
//go:embed starter
var starter embed.FS

// starterGo is the version of Go that they need.
const starterGo = "1.26.5"

// newNewCommand makes "epl new".
func newNewCommand() *cobra.Command {
	var module, clone string
	cmd := &cobra.Command{
		Use:   "new [flags] FOLDER",
		Short: "Write a training program to start from",
		Long: `Write a training program to start from: a model with annotations, data, training with checkpoints and evaluation, tests that it learns, goes on and is the
same on two devices, a Makefile, a Dockerfile and a manifest for Kubernetes. The folder must be new or empty.`,
		Example: `  epl new mytrainer
  epl new --module github.com/me/mytrainer mytrainer
  epl new --epl ../epl mytrainer                       with a clone of EPL`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("epl: which folder? One, for example: epl new mytrainer")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := newProject(args[0], module, clone)
			if err != nil {
				return err
			}
			written, err := p.write(args[0])
			if err != nil {
				return err
			}
			for _, name := range written {
				fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(args[0], name))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nNext: cd %s && go mod tidy && make test && make train\n", args[0])
			return err
		},
	}
	cmd.Flags().StringVar(&module, "module", "", "path of the program's module (default example.com/FOLDER)")
	cmd.Flags().StringVar(&clone, "epl", "", "a clone of EPL to build with, instead of the version of this command")
	return cmd
}

// project is what the templates know.
type project struct {
	Name, Module, Go string
	Version, Clone   string // of EPL
}

var (
	// It is also the name of Kubernetes objects, which end with a letter or a digit.
	programName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,39}[a-z0-9])?$`)
	// As Go has it, no element begins or ends with a dot.
	modulePath = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._~-]*[A-Za-z0-9_~-])?(/[A-Za-z0-9_~-]([A-Za-z0-9._~-]*[A-Za-z0-9_~-])?)*$`)
)

func newProject(folder, module, clone string) (*project, error) {
	p := &project{Name: filepath.Base(filepath.Clean(folder)), Module: module, Go: starterGo, Version: "v" + version.Version}
	if !programName.MatchString(p.Name) {
		return nil, usage.Errorf("epl: %q is no name for a program; use a folder of small letters, digits and -, with a letter first and no - at the end", p.Name)
	}
	if p.Module == "" {
		p.Module = path.Join("example.com", p.Name)
	}
	if !modulePath.MatchString(p.Module) {
		return nil, usage.Errorf("epl: %q is no path of a module; one is github.com/me/%s", p.Module, p.Name)
	}
	if clone == "" {
		if strings.HasSuffix(p.Version, "-dev") {
			return nil, errors.Errorf("epl: this command is of EPL %s, which is not released; give the clone it was built from: epl new --epl PATH %s", version.Version, folder)
		}
		return p, nil
	}
	if text, err := os.ReadFile(filepath.Join(clone, "go.mod")); err != nil || !bytes.HasPrefix(text, []byte("module github.com/easyparallel/epl\n")) {
		return nil, errors.Errorf("epl: --epl %s is no clone of EPL: it has no go.mod of github.com/easyparallel/epl", clone)
	}
	full, err := filepath.Abs(clone)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	p.Version, p.Clone = "v0.0.0", full
	return p, nil
}

// write writes the files, and returns their names. All are made before the first is written.
func (p *project) write(folder string) (names []string, _ error) {
	files := map[string][]byte{}
	err := fs.WalkDir(starter, "starter", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		t, err := template.ParseFS(starter, name)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, p); err != nil {
			return err
		}
		name = strings.TrimSuffix(path.Base(name), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore"
		}
		files[name] = b.Bytes()
		names = append(names, name)
		return nil
	})
	if err != nil {
		return nil, errors.WithStack(err)
	}
	var manifest bytes.Buffer
	if err := launch.Generate(&manifest, "k8s", launch.Options{Command: []string{"/app/" + p.Name}, Workers: 2, Image: p.Name + ":latest"}); err != nil {
		return nil, err
	}
	names, files["k8s.yaml"] = append(names, "k8s.yaml"), manifest.Bytes()

	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, errors.WithStack(err)
	}
	if there, err := os.ReadDir(folder); err != nil {
		return nil, errors.WithStack(err)
	} else if len(there) > 0 {
		return nil, errors.Errorf("epl: %s is not empty (it has %s); use a new folder", folder, there[0].Name())
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(folder, name), files[name], 0o666); err != nil {
			return nil, errors.WithStack(err)
		}
	}
	return names, nil
}
