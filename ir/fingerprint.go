package ir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// unique matches what GoMLX puts into names to make them differ in every process.
var unique = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// Stable replaces what differs in every process, though the program is the same.
func Stable(text string) string { return unique.ReplaceAllString(text, "…") }

// Fingerprint is the same for programs that compute the same in the same way, in this process and in others: it covers the text of
// the program without its name and the lines of the user, which change when a comment does.
func (p *Program) Fingerprint() string {
	var w strings.Builder
	q := *p
	q.Name = ""
	q.write(&w, printer{bare: true})
	sum := sha256.Sum256([]byte(Stable(w.String())))
	return hex.EncodeToString(sum[:12])
}

// VariableNames are names of the variables that are the same in every process, and differ: their paths, with a number where
// these are equal but for what differs.
func (p *Program) VariableNames() []string {
	names, times := make([]string, len(p.Variables)), map[string]int{}
	for i, v := range p.Variables {
		names[i] = Stable(v.Path)
		if times[names[i]]++; times[names[i]] > 1 {
			names[i] += fmt.Sprintf("#%d", times[names[i]])
		}
	}
	return names
}
