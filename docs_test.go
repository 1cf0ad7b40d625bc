// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/easyparallel/epl/internal/version"
)

// What the documents show is checked, so that it cannot rot:
//
//   - A block of code, text or a diff with the comment <!-- from: FILE --> in front of it must stand in that file, line
//     for line; the indentation of the block as a whole does not count, and a line "…" skips lines of the file.
//   - What stands between <!-- output: NAME --> and <!-- end --> is made by the function outputs[NAME]; -update
//     rewrites it.
//   - Go code and text without either is an error, but for the pages in notOurs, where Go code must parse.
//   - Links to files and headings, make targets and paths of go commands must exist.

var update = flag.Bool("update", false, "rewrite the outputs shown in documents")

// notOurs are pages with rules of their own.
var notOurs = []string{"docs/configuration.md", "docs/benchmarks.md"}

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		found[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// block is a fenced part of a document.
type block struct {
	language string
	from     string // the file of the comment in front of it
	output   bool   // it is made by a function
	line     int
	lines    []string
}

var fromComment = regexp.MustCompile(`^<!-- from: (\S+) -->$`)

func blocks(text string) (all []block) {
	var b *block
	from, inOutput := "", false
	for i, line := range strings.Split(text, "\n") {
		switch fence, isFence := strings.CutPrefix(line, "```"); {
		case b == nil && isFence:
			b = &block{language: fence, from: from, output: inOutput, line: i + 1}
		case b != nil && line == "```":
			all = append(all, *b)
			b, from = nil, ""
		case b != nil:
			b.lines = append(b.lines, line)
		case strings.HasPrefix(line, "<!-- output: "):
			inOutput = true
		case line == "<!-- end -->":
			inOutput = false
		case fromComment.MatchString(line):
			from = fromComment.FindStringSubmatch(line)[1]
		case line != "":
			from = ""
		}
	}
	return all
}

func TestCodeAndTextInDocumentsIsRealCodeAndText(t *testing.T) {
	for path, text := range documents(t) {
		for _, b := range blocks(text) {
			where := fmt.Sprintf("%s:%d", path, b.line)
			switch {
			case b.from != "":
				source, err := os.ReadFile(b.from)
				if err != nil {
					t.Errorf("%s: %v", where, err)
					continue
				}
				if missing := standsIn(b, strings.Split(string(source), "\n")); missing != "" {
					t.Errorf("%s: %s does not have, in this place:\n%s", where, b.from, missing)
				}
			case b.output:
			case slices.Contains(notOurs, path):
				if b.language == "go" && !parses(strings.Join(b.lines, "\n")) {
					t.Errorf("%s: this is not Go", where)
				}
			case b.language == "go" || b.language == "text" || b.language == "diff":
				t.Errorf("%s: say by a comment <!-- from: FILE --> where this comes from", where)
			}
		}
	}
}

// standsIn returns the first part of the block that the source does not have after the parts before it, or "". Parts
// are separated by "…".
func standsIn(b block, source []string) (missing string) {
	at := 0
	for part := range strings.SplitSeq(strings.Join(newText(b), "\n"), "…") {
		lines := strings.Split(strings.Trim(part, "\n"), "\n")
		for !hasPrefix(source[at:], lines) {
			if at++; at == len(source) {
				return strings.Join(lines, "\n")
			}
		}
		at += len(lines)
	}
	return ""
}

// newText returns the lines of a block; those of a diff without its marks and without what it takes away.
func newText(b block) (lines []string) {
	for _, line := range b.lines {
		if b.language == "diff" {
			if strings.HasPrefix(line, "-") {
				continue
			}
			line = line[min(2, len(line)):]
		}
		if strings.TrimSpace(line) == "…" {
			line = "…"
		}
		lines = append(lines, line)
	}
	return lines
}

// hasPrefix tells whether source begins with the lines, all indented by the same.
func hasPrefix(source, lines []string) bool {
	if len(source) < len(lines) {
		return false
	}
	indent, ok := strings.CutSuffix(source[0], lines[0])
	if !ok || strings.TrimSpace(indent) != "" {
		return false
	}
	for i, line := range lines {
		if source[i] != indent+line && !(line == "" && source[i] == "") {
			return false
		}
	}
	return true
}

// parses tells whether a text is Go: a file, declarations, or statements.
func parses(text string) bool {
	for _, around := range []string{"%s", "package p\n%s", "package p\nfunc _() {\n%s\n}"} {
		if _, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(around, text), parser.SkipObjectResolution); err == nil {
			return true
		}
	}
	return false
}

var outputRegion = regexp.MustCompile(`(?ms)^<!-- output: ([^>]+) -->\n(.*?)^<!-- end -->$`)

func TestOutputsInDocumentsAreWhatTheCodePrints(t *testing.T) {
	made := outputs(t)
	used := map[string]bool{}
	for path, text := range documents(t) {
		changed := outputRegion.ReplaceAllStringFunc(text, func(region string) string {
			m := outputRegion.FindStringSubmatch(region)
			name, shown := m[1], m[2]
			want, ok := made[name]
			if !ok {
				t.Errorf("%s: there is no output %q", path, name)
				return region
			}
			used[name] = true
			// Lines of text wrap where they do because of the folder that the repository was cloned to: its name is in them.
			if strings.Join(strings.Fields(shown), " ") == strings.Join(strings.Fields(want), " ") {
				return region
			}
			if !*update {
				t.Errorf("%s: the output %q is not what the code prints; run: go test -run Documents -update .\ngot:\n%s", path, name, want)
			}
			return fmt.Sprintf("<!-- output: %s -->\n%s<!-- end -->", name, want)
		})
		if *update && changed != text {
			if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range made {
		if !used[name] {
			t.Errorf("no document shows the output %q", name)
		}
	}
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notInSlug  = regexp.MustCompile(`[^a-z0-9 _-]+`)
)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	all := documents(t)
	for path, text := range all {
		for _, m := range linkTarget.FindAllStringSubmatch(prose(text), -1) {
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: the link %s leads nowhere", path, m[1])
					continue
				}
			}
			if hasAnchor && !slices.Contains(headings(all[file]), anchor) {
				t.Errorf("%s: the link %s: %s has no such heading", path, m[1], file)
			}
		}
	}
}

// prose is a document without its blocks of code.
func prose(text string) string {
	parts := strings.Split(text, "\n```")
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		b.WriteString(parts[i] + "\n")
	}
	return b.String()
}

// headings returns the anchors of a document.
func headings(text string) (anchors []string) {
	for line := range strings.SplitSeq(prose(text), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			slug := notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors = append(anchors, strings.ReplaceAll(slug, " ", "-"))
		}
	}
	return anchors
}

var (
	makeTarget = regexp.MustCompile(`\bmake ([a-z]+)`)
	goPath     = regexp.MustCompile(`\bgo (?:run|test|vet|build)\b[^\n]*? (\./[\w/.-]+)`)
)

func TestCommandsInDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range documents(t) {
		for _, b := range blocks(text) {
			if b.language != "sh" {
				continue
			}
			for _, line := range b.lines {
				for _, m := range makeTarget.FindAllStringSubmatch(line, -1) {
					if !strings.Contains(string(makefile), "\n"+m[1]+":") {
						t.Errorf("%s:%d: the Makefile has no target %s", path, b.line, m[1])
					}
				}
				for _, m := range goPath.FindAllStringSubmatch(line, -1) {
					if _, err := os.Stat(strings.TrimSuffix(m[1], "/...")); err != nil {
						t.Errorf("%s:%d: %v", path, b.line, err)
					}
				}
			}
		}
	}
}

// firstColumn finds the first cells of tables.
var firstColumn = regexp.MustCompile(`(?m)^\|([^|]*)\|`)

func TestTheTourNamesEveryPackage(t *testing.T) {
	named := map[string]bool{}
	for _, row := range firstColumn.FindAllStringSubmatch(documents(t)["docs/architecture.md"], -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			named[m[1]] = true
		}
	}
	for _, p := range listPackages(t) {
		name, isOurs := ours(p.ImportPath)
		if name == "" {
			name = "epl"
		}
		if isOurs && !named[name] {
			t.Errorf("the table of packages in docs/architecture.md lacks %s", name)
		}
	}
}

func TestContinuousIntegrationRunsTheTestCommandOfTheREADME(t *testing.T) {
	var commands []string
	for _, b := range blocks(documents(t)["README.md"]) {
		if b.language == "sh" {
			commands = append(commands, b.lines...)
		}
	}
	if len(commands) < 2 || !strings.HasPrefix(commands[0], "go run ") || !strings.HasPrefix(commands[1], "go test ") {
		t.Fatalf("the README does not begin with a command that runs and one that tests: %q", commands)
	}
	script, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)\b` + regexp.QuoteMeta(commands[1]) + `$`).Match(script) {
		t.Errorf(".ci/run does not call %q", commands[1])
	}
	workflow, err := os.ReadFile(".github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	if err := yaml.Unmarshal(workflow, &parsed); err != nil {
		t.Fatal(err)
	}
	if steps := parsed.Jobs["check"].Steps; len(steps) == 0 || steps[len(steps)-1].Run != ".ci/run" {
		t.Errorf("the workflow does not end with .ci/run: %+v", parsed)
	}
}

func TestTheChangelogHasWhatThisTreeIs(t *testing.T) {
	text := documents(t)["CHANGELOG.md"]
	want := "## [" + version.Version + "]"
	if strings.HasSuffix(version.Version, "-dev") {
		want = "## [Unreleased]"
	}
	if !strings.Contains(text, want) {
		t.Errorf("CHANGELOG.md has no %q", want)
	}
}
