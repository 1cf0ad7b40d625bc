// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/easyparallel/epl/config"
)

// Every command in a block of commands is one that a test knows: commands of this repository must be there, with the flags they are given. The tests of cmd/epl
// and cmd/epl-launch look at the flags of these two. docs_run_test.go runs the commands.

// others are commands that come from elsewhere, and words of the shell.
var others = []string{"apt-get", "do", "docker", "done", "export", "for", "hf", "kubectl", "ls", "mkdir", "mpirun", "pip", "printf", "sbatch", "source", "torchrun", "wget"}

// goFlags are those of go test and go build that documents use.
var goFlags = []string{"args", "bench", "c", "o", "run", "skip", "tags", "timeout", "v"}

var (
	shellComment = regexp.MustCompile(`(^|\s)#.*`)
	shellQuoted  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	shellFile    = regexp.MustCompile(`>\s*\S+`)
	shellBreak   = regexp.MustCompile(`&&|\|\||[|;]`)
	assignment   = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=(.*)$`)
	goCommand    = regexp.MustCompile(`^go (?:run|test|build|vet) `)
	flagWord     = regexp.MustCompile(`^--?([a-zA-Z][\w.-]*)(=.*)?$`)
)

// programs are what blocks of a page have built: the folder by name.
type programs map[string]string

func TestCommandsInDocumentsAreKnown(t *testing.T) {
	checked := 0
	known := flagsOf{}
	for page, text := range documents(t) {
		if page == "CHANGELOG.md" {
			continue
		}
		built := programs{"train": "", "mytrainer": ""} // the reader's own
		for _, line := range commandLines(text) {
			checked++
			if err := built.check(strings.Fields(line), known); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if checked < 120 {
		t.Errorf("only %d commands were found", checked)
	}
}

// shellLines are the commands of the blocks of a document, and of spans that begin with "go run", "go test" or "go build". A loop is one command.
func shellLines(text string) (lines []string) {
	for _, b := range blocks(text) {
		if (b.language != "sh" && b.language != "bash") || b.from != "" {
			continue
		}
		inLoop := false
		for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(b.lines, "\n"), "\\\n", " "), "\n") {
			if inLoop {
				lines[len(lines)-1] += "\n" + line
			} else {
				lines = append(lines, line)
			}
			inLoop = strings.HasPrefix(line, "for ") || inLoop && line != "done"
		}
	}
	for _, m := range codeSpan.FindAllStringSubmatch(prose(text), -1) {
		if goCommand.MatchString(m[1]) {
			lines = append(lines, m[1])
		}
	}
	return lines
}

// commandLines are the single commands of a document, without what is quoted in them.
func commandLines(text string) (lines []string) {
	for line := range strings.SplitSeq(strings.Join(shellLines(text), "\n"), "\n") {
		line = shellQuoted.ReplaceAllString(shellComment.ReplaceAllString(line, ""), "quoted")
		for _, part := range shellBreak.Split(shellFile.ReplaceAllString(line, ""), -1) {
			if part = strings.TrimSpace(part); part != "" && part != "…" {
				lines = append(lines, part)
			}
		}
	}
	return lines
}

// check tells what is wrong with a command.
func (built programs) check(words []string, known flagsOf) error {
	for len(words) > 0 && assignment.MatchString(words[0]) {
		m := assignment.FindStringSubmatch(words[0])
		if err := variableIsKnown(m[1]); err != nil {
			return err
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	switch name := words[0]; {
	case name == "epl" || name == "epl-launch":
		return built.checkRest(words[1:], known)
	case name == "go":
		return built.checkGo(words[1:], known)
	case name == "make":
		return nil // another test looks for targets
	case name == "bash" || name == "python3":
		_, err := os.Stat(words[1])
		return err
	case strings.HasPrefix(name, "./"):
		folder, ok := built[strings.TrimPrefix(name, "./")]
		if !ok {
			return fmt.Errorf("the page does not build %s", name)
		}
		return known.check(folder, words[1:])
	case strings.Contains(name, "/"):
		if _, err := os.Stat(name); err != nil {
			return err
		}
		return known.check(path.Dir(name), words[1:]) // the script of an example
	case slices.Contains(others, name):
		return nil
	}
	return fmt.Errorf("no test knows the command %s", words[0])
}

// checkRest checks the command that is an argument of epl or epl-launch.
func (built programs) checkRest(words []string, known flagsOf) error {
	for i, word := range words {
		if word == "go" || strings.HasPrefix(word, "./") && path.Ext(word) == "" || strings.HasPrefix(word, "examples/") {
			return built.check(words[i:], known)
		}
	}
	return nil
}

func (built programs) checkGo(words []string, known flagsOf) error {
	at := slices.IndexFunc(words, func(word string) bool {
		return strings.HasPrefix(word, "./") || word == "." || strings.Contains(word, "@")
	})
	if at < 0 || strings.Contains(words[at], "@") {
		return nil // go get, go install, go env
	}
	folder := path.Clean(strings.TrimSuffix(words[at], "/..."))
	if _, err := os.Stat(folder); err != nil {
		return err
	}
	switch words[0] {
	case "build", "install", "vet":
		if o := slices.Index(words, "-o"); o >= 0 {
			built[words[o+1]] = folder
		}
		return nil
	case "test":
		if o := slices.Index(words, "-o"); o >= 0 {
			built[words[o+1]] = ""
		}
		if err := testsMatch(words, folder); err != nil {
			return err
		}
		return known.check(folder, words[1:], goFlags...)
	}
	if folder == "cmd/epl" || folder == "cmd/epl-launch" {
		return built.checkRest(words[at+1:], known)
	}
	return known.check(folder, words[at+1:])
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testsMatch tells whether a folder has tests that match -run.
func testsMatch(words []string, folder string) error {
	run := slices.Index(words, "-run")
	if run < 0 || words[run+1] == "quoted" {
		return nil
	}
	pattern, err := regexp.Compile(words[run+1])
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			if pattern.Match(m[1]) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no test that matches %s", folder, pattern)
}

// variableIsKnown tells whether a variable of EPL's is a configuration key, or one that the sources name.
func variableIsKnown(name string) error {
	rest, ours := strings.CutPrefix(name, "EPL_")
	if !ours {
		return nil
	}
	for _, e := range new(config.Config).Entries() {
		if strings.ToUpper(strings.ReplaceAll(e.Key, ".", "_")) == rest {
			return nil
		}
	}
	for _, page := range []string{"docs/configuration.md", "docs/launching.md", "docs/elastic.md", "docs/gpu.md", "docs/profiles.md"} {
		if text, err := os.ReadFile(page); err == nil && strings.Contains(string(text), "`"+name) {
			return nil
		}
	}
	return fmt.Errorf("no page explains the variable %s", name)
}

// flagsOf are the flags that the sources of a folder define, by folder.
type flagsOf map[string]map[string]bool

func (known flagsOf) check(folder string, words []string, more ...string) error {
	if folder == "" || folder == "." {
		return nil // the reader's own program
	}
	if known[folder] == nil {
		known[folder] = map[string]bool{"h": true, "help": true}
		if err := known.read(folder, folder); err != nil {
			return err
		}
	}
	for _, word := range words {
		if m := flagWord.FindStringSubmatch(word); m != nil && !known[folder][m[1]] && !slices.Contains(more, m[1]) {
			return fmt.Errorf("%s has no flag -%s", folder, m[1])
		}
	}
	return nil
}

var flagMethod = regexp.MustCompile(`^(Bool|Duration|Float64|Int|Int64|String|Uint|Uint64|Func|BoolFunc|Text|)(Var)?$`)

// read finds the flags of a folder, with those of packages of examples that it imports.
func (known flagsOf) read(of, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, imported := range parsed.Imports {
			name, _ := strconv.Unquote(imported.Path.Value)
			if at, ours := strings.CutPrefix(name, "github.com/easyparallel/epl/examples/internal/"); ours {
				if err := known.read(of, "examples/internal/"+at); err != nil {
					return err
				}
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); !ok || !flagMethod.MatchString(method.Sel.Name) {
				return true
			}
			for _, arg := range call.Args[:min(2, len(call.Args))] {
				if name, ok := arg.(*ast.BasicLit); ok && name.Kind == token.STRING {
					text, _ := strconv.Unquote(name.Value)
					known[of][text] = true
					break
				}
			}
			return true
		})
	}
	return nil
}
