package ir_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// checkText: no text makes Parse or Verify panic, and what parses prints as text that parses and prints the same.
func checkText(t *testing.T, text string) (parses bool) {
	p, err := ir.Parse(text)
	if err != nil {
		return false
	}
	_ = p.Verify()
	printed := p.String()
	q, err := ir.Parse(printed)
	if err != nil {
		t.Fatalf("what it prints does not parse: %v\n%s\n%s", err, printed, text)
	}
	if again := q.String(); again != printed {
		t.Fatalf("it prints differently once parsed: %s\n%s", firstDifference(printed, again), text)
	}
	return true
}

func FuzzParse(f *testing.F) {
	for _, text := range append(examples(f), everything, instances) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkText(t, text) })
}

var token = regexp.MustCompile(`"[^"]*"|%?[\w.]+|\s+|.`)

// Fuzzing rarely gets past the syntax. Here whole words are dropped, doubled, exchanged, or put in the place of others.
func TestMangledProgramsNeitherPanicNorPrintWhatDoesNotParse(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	parsed := 0
	texts := []string{everything, instances}
	for range 3000 {
		words := token.FindAllString(texts[rng.IntN(len(texts))], -1)
		for range 1 + rng.IntN(3) {
			i, j := rng.IntN(len(words)), rng.IntN(len(words))
			switch rng.IntN(4) {
			case 0:
				words = slices.Delete(words, i, i+1)
			case 1:
				words = slices.Insert(words, i, words[i])
			case 2:
				words[i], words[j] = words[j], words[i]
			case 3:
				words[i] = words[j]
			}
		}
		if checkText(t, strings.Join(words, "")) {
			parsed++
		}
	}
	if parsed < 300 {
		t.Errorf("only %d mangled programs parse: this tests little", parsed)
	}
}
