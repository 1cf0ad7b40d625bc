package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	commandLine = regexp.MustCompile("(?m)(?:^|[ `])epl-launch +(-[^\n`#|>;]*)")
	flagSpan    = regexp.MustCompile("`(--[a-z_]+(?:[ =][^`]*)?)`")
	placeholder = regexp.MustCompile(`^[A-Z]+$`) // it stands for a value
	quotedWords = regexp.MustCompile(`'[^']*'`)
)

// Command lines of epl-launch in documents, and flags in the last column of the tables of docs/coming-from.md, are understood.
func TestFlagsInDocumentsExist(t *testing.T) {
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
		var lines []string
		for _, m := range commandLine.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, m[1])
		}
		if filepath.Base(page) == "coming-from.md" {
			for line := range strings.Lines(string(text)) {
				cell := strings.TrimSuffix(strings.TrimSpace(line), "|")
				for _, m := range flagSpan.FindAllStringSubmatch(cell[strings.LastIndexByte(cell, '|')+1:], -1) {
					lines = append(lines, m[1])
				}
			}
		}
		for _, line := range lines {
			status := 0
			words := strings.Fields(quotedWords.ReplaceAllString(line, "quoted"))
			for i, word := range words {
				if placeholder.MatchString(word) {
					words[i] = "1"
				}
			}
			if last := words[len(words)-1]; strings.HasPrefix(last, "--") {
				words = append(words, "1") // a flag is named without its value
			}
			if err := newCommand(nil, nil, &status).Flags().Parse(words); err != nil && !strings.Contains(err.Error(), "help requested") && !strings.Contains(err.Error(), "flag: --version") {
				t.Errorf("%s: epl-launch %s: %v", page, line, err)
			}
			checked++
		}
	}
	if checked < 30 {
		t.Errorf("only %d command lines were found", checked)
	}
}
