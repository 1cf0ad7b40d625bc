// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"
)

// question is a question of SQuAD about its context, the paragraph that has the answer.
type question struct {
	id, text, context string
	answers           []string // those that people gave: one for training, several to compare with
	at                span     // where the first of them is; nothing if it is not where the file says
}

// span is a part of a text: text[start:end].
type span struct{ start, end int }

// squadFile is a file of SQuAD v1.1. Answers begin at a character, not at a byte.
type squadFile struct {
	Version string         `json:"version"`
	Data    []squadArticle `json:"data"`
}

type squadArticle struct {
	Title      string           `json:"title"`
	Paragraphs []squadParagraph `json:"paragraphs"`
}

type squadParagraph struct {
	Context   string          `json:"context"`
	Questions []squadQuestion `json:"qas"`
}

type squadQuestion struct {
	ID       string        `json:"id"`
	Question string        `json:"question"`
	Answers  []squadAnswer `json:"answers"`
}

type squadAnswer struct {
	Start int    `json:"answer_start"`
	Text  string `json:"text"`
}

// readSquad reads the questions of a file.
func readSquad(path string) ([]question, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bert: questions cannot be read: %w", err)
	}
	return parseSquad(text, path)
}

// parseSquad reads questions from text in the format of SQuAD v1.1.
func parseSquad(text []byte, name string) (all []question, err error) {
	var file squadFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("bert: %s is not in the format of SQuAD v1.1: %w", name, err)
	}
	seen := map[string]bool{}
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			at := characters(p.Context)
			for _, q := range p.Questions {
				if q.ID == "" || seen[q.ID] {
					return nil, fmt.Errorf("bert: %s: there are two questions of id %q, or one without: answers go by it, so give each its own", name, q.ID)
				}
				seen[q.ID] = true
				if len(q.Answers) == 0 {
					return nil, fmt.Errorf("bert: %s: question %s has no answer; questions without are of SQuAD v2.0, use files of v1.1", name, q.ID)
				}
				one := question{id: q.ID, text: q.Question, context: p.Context}
				for _, a := range q.Answers {
					one.answers = append(one.answers, a.Text)
				}
				one.at = p.place(q.Answers[0], at)
				all = append(all, one)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bert: %s has no question; it should have data, paragraphs and qas, as SQuAD v1.1 has", name)
	}
	return all, nil
}

// characters returns at which byte each character of a text begins, and where the text ends.
func characters(text string) (at []int) {
	for i := range text {
		at = append(at, i)
	}
	return append(at, len(text))
}

// place returns where an answer is, if it is there; at says at which byte each character of the context begins.
func (p squadParagraph) place(a squadAnswer, at []int) span {
	if end := a.Start + utf8.RuneCountInString(a.Text); a.Start >= 0 && end < len(at) {
		if s := (span{at[a.Start], at[end]}); p.Context[s.start:s.end] == a.Text {
			return s
		}
	}
	return span{}
}

// placed leaves out questions that cannot be trained with, because their answer is not where the file says. SQuAD has
// a few.
func placed(questions []question) (kept, dropped []question) {
	for _, q := range questions {
		if q.at.start < q.at.end {
			kept = append(kept, q)
		} else {
			dropped = append(dropped, q)
		}
	}
	return kept, dropped
}
