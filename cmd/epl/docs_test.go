package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	commandLine = regexp.MustCompile("(?m)(?:^|[ `/])epl +([a-z][^\n`#|>;&]*)")
	placeholder = regexp.MustCompile(`^([A-Z]+|[a-z])$`) // it stands for a value
)

// Command lines of epl in code of documents are understood: the subcommand is there, with the flags.
func TestCommandsInDocumentsExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codeOf(string(text)) {
			for _, m := range commandLine.FindAllStringSubmatch(code, -1) {
				checked++
				args := strings.Fields(m[1])
				for i, word := range args {
					if placeholder.MatchString(word) {
						args[i] = "1"
					}
				}
				cmd, rest, err := newRootCommand().Find(args)
				if err == nil && cmd.Name() == "epl" {
					t.Errorf("%s: there is no command epl %s", page, m[1])
					continue
				}
				if err == nil {
					if last := len(rest) - 1; last >= 0 && strings.HasPrefix(rest[last], "--") && rest[last] != "--" {
						rest = append(rest, "1") // a flag is named without its value
					}
					err = cmd.ParseFlags(rest)
				}
				if err != nil && !strings.Contains(err.Error(), "help requested") {
					t.Errorf("%s: epl %s: %v", page, m[1], err)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d command lines were found", checked)
	}
}

// codeOf are the spans of code, and the blocks of commands, of a document.
func codeOf(text string) (all []string) {
	for i, part := range strings.Split(text, "\n```") {
		if i%2 == 1 {
			if language, code, _ := strings.Cut(part, "\n"); language == "sh" || language == "bash" {
				all = append(all, code)
			}
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1) {
			all = append(all, m[1])
		}
	}
	return all
}
