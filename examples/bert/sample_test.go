// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

var update = flag.Bool("update", false, "write the files of the sample again")

// What the sample is about.
var (
	people   = strings.Fields("Anna Ben Clara David Emma Felix Hugo Ida Leo Mia Paul Zoë")
	towns    = []string{"Oslo", "Paris", "Rome", "Lima", "Cairo", "Delhi", "Tokyo", "New York", "Cape Town", "Zürich", "Porto", "Quito", "San José", "Riga"}
	colours  = strings.Fields("red blue green yellow white black brown pink")
	things   = strings.Fields("kite bike boat ball hat car drum lamp book coat clock guitar")
	jobs     = []string{"teacher", "doctor", "baker", "pilot", "farmer", "painter", "bus driver", "nurse", "judge", "cook", "taxi driver", "tailor"}
	vehicles = strings.Fields("train bus plane ship bike taxi")
	games    = strings.Fields("chess tennis football golf cards")
	tongues  = strings.Fields("French Spanish German Dutch Greek Norwegian")
	meals    = []string{"fish soup", "rice", "apple pie", "bread", "cheese", "tomato soup"}
)

// fact is a kind of sentence, with questions that it answers. {n} is a person, and {a} what is asked for.
type fact struct {
	sentences, questions []string
	answer               func(r *rand.Rand) string
}

func oneOf(words []string) func(r *rand.Rand) string {
	return func(r *rand.Rand) string { return words[r.IntN(len(words))] }
}

var facts = []fact{
	{[]string{"{n} lives in {a}.", "The home of {n} is in {a}."}, []string{"Where does {n} live?", "In which town does {n} live?"}, oneOf(towns)},
	{[]string{"{n} has a {a}.", "There is a {a} that {n} owns."}, []string{"What does {n} have?", "What does {n} own?"},
		func(r *rand.Rand) string { return oneOf(colours)(r) + " " + oneOf(things)(r) }},
	{[]string{"{n} was born in {a}.", "In {a}, {n} was born."}, []string{"When was {n} born?", "In which year was {n} born?"},
		func(r *rand.Rand) string { return fmt.Sprint(1900 + r.IntN(120)) }},
	{[]string{"{n} works as a {a}.", "The job of {n} is {a}."}, []string{"What is the job of {n}?", "As what does {n} work?"}, oneOf(jobs)},
	{[]string{"{n} travels by {a}.", "It is by {a} that {n} travels."}, []string{"How does {n} travel?", "By what does {n} travel?"}, oneOf(vehicles)},
	{[]string{"{n} plays {a}.", "The game that {n} plays is {a}."}, []string{"What does {n} play?", "Which game does {n} play?"}, oneOf(games)},
	{[]string{"{n} speaks {a}.", "At home {n} speaks {a}."}, []string{"What does {n} speak?", "Which language does {n} speak?"}, oneOf(tongues)},
	{[]string{"{n} likes to eat {a}.", "For dinner {n} eats {a}."}, []string{"What does {n} eat?", "What does {n} like to eat?"}, oneOf(meals)},
}

// paragraph makes a context of sentences about different people, each of another kind, and questions about some of them.
func paragraph(r *rand.Rand, id string, sentences, questions int) squadParagraph {
	var p squadParagraph
	persons := r.Perm(len(people))[:sentences]
	kinds, asked := r.Perm(len(facts)), r.Perm(sentences)[:questions]
	for i, person := range persons {
		f := facts[kinds[i]]
		name, answer := people[person], f.answer(r)
		sentence := strings.Replace(oneOf(f.sentences)(r), "{n}", name, 1)
		if i > 0 {
			p.Context += " "
		}
		before, after, _ := strings.Cut(sentence, "{a}")
		start := utf8.RuneCountInString(p.Context + before)
		p.Context += before + answer + after
		if !slices.Contains(asked, i) {
			continue
		}
		q := squadQuestion{ID: fmt.Sprintf("%s-%d", id, i), Question: strings.Replace(oneOf(f.questions)(r), "{n}", name, 1),
			Answers: []squadAnswer{{start, answer}}}
		if strings.HasPrefix(id, "dev") && strings.HasSuffix(before, " a ") { // people differ
			q.Answers = append(q.Answers, squadAnswer{start - 2, "a " + answer})
		}
		p.Questions = append(p.Questions, q)
	}
	return p
}

// generate makes a file of the sample. One context of ten is so long that a window does not hold it.
func generate(name string, paragraphs int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	article := squadArticle{Title: "people"}
	for i := range paragraphs {
		sentences := 3 + r.IntN(2)
		if i%10 == 9 {
			sentences = len(facts)
		}
		article.Paragraphs = append(article.Paragraphs, paragraph(r, fmt.Sprintf("%s-%d", name, i), sentences, 3))
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(squadFile{Version: "1.1", Data: []squadArticle{article}}); err != nil {
		panic(err)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte(`{"context"`), []byte("\n"+`{"context"`)) // a line for each paragraph
}

// withoutAccents is a text in lower case, as a vocabulary of an uncased BERT has it.
func withoutAccents(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(strings.ToLower(text)))
}

// generateVocabulary knows the frequent words as a whole, and makes the others of pieces.
func generateVocabulary() []byte {
	vocabulary := strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] . , ? ' \"")
	add := func(words ...string) {
		for _, w := range words {
			if !slices.Contains(vocabulary, w) {
				vocabulary = append(vocabulary, w)
			}
		}
	}
	for _, prefix := range []string{"", "##"} {
		for c := 'a'; c <= 'z'; c++ {
			add(prefix + string(c))
		}
	}
	add("18", "19", "20")
	for n := range 100 {
		add(fmt.Sprintf("##%02d", n))
	}
	add("##er", "##or", "##an", "##ian")
	add(strings.Fields("the a in is was by as of that it there where what when which how does live has have own work job home " +
		"born year town travel bus taxi teach pilot farm paint nurse judge cook bake doct tail driv play game speak language at for dinner eat like to norweg")...)
	for _, list := range [][]string{people, towns, colours, things, vehicles, games, tongues[:5], meals} {
		for _, w := range list {
			add(strings.Fields(withoutAccents(w))...)
		}
	}
	return []byte(strings.Join(vocabulary, "\n") + "\n")
}

func TestTheFilesOfTheSampleAreWhatTheGeneratorMakes(t *testing.T) {
	for name, want := range map[string][]byte{
		"train.json": generate("train", 600, 1), "dev.json": generate("dev", 60, 2), "vocab.txt": generateVocabulary(),
	} {
		path := filepath.Join("sample", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs: go test ./examples/bert -update writes it again", path)
		}
	}
}
