// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnswersBeginAtCharactersNotAtBytes(t *testing.T) {
	q, err := parseSquad([]byte(`{"version":"1.1","data":[{"title":"x","paragraphs":[{"context":"Zoë 😀 lives in Zürich.","qas":[
		{"id":"1","question":"Where?","answers":[{"answer_start":15,"text":"Zürich"},{"answer_start":12,"text":"in Zürich"}]}]}]}]}`), "test")
	if err != nil {
		t.Fatal(err)
	}
	if len(q) != 1 || len(q[0].answers) != 2 || q[0].answers[1] != "in Zürich" || q[0].context[q[0].at.start:q[0].at.end] != "Zürich" {
		t.Errorf("got %+v", q)
	}
}

func TestAnswersThatAreNotWhereTheFileSaysAreLeftOutOfTraining(t *testing.T) {
	for name, a := range map[string]string{
		"elsewhere": `{"answer_start":1,"text":"Anna"}`, "before": `{"answer_start":-1,"text":"Anna"}`,
		"after": `{"answer_start":17,"text":"Rome."}`, "far after": `{"answer_start":99,"text":"Anna"}`, "nothing": `{"answer_start":3,"text":""}`,
	} {
		q, err := parseSquad([]byte(`{"data":[{"paragraphs":[{"context":"Anna lives in Rome.","qas":[
			{"id":"wrong","question":"Who?","answers":[`+a+`]}, {"id":"right","question":"Where?","answers":[{"answer_start":14,"text":"Rome."}]}]}]}]}`), "test")
		if err != nil {
			t.Fatal(err)
		}
		kept, dropped := placed(q)
		if len(kept) != 1 || kept[0].id != "right" || len(dropped) != 1 || dropped[0].id != "wrong" {
			t.Errorf("%s: kept %v, dropped %v", name, kept, dropped)
		}
	}
}

func TestFilesThatAreNotOfSquadAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"x":            "bert: f.json is not in the format of SQuAD v1.1: invalid character",
		`{"data":[1]}`: "bert: f.json is not in the format of SQuAD v1.1: json: cannot unmarshal",
		`{"data":[]}`:  "bert: f.json has no question; it should have data, paragraphs and qas, as SQuAD v1.1 has",
		`{}`:           "bert: f.json has no question",
		`{"data":[{"paragraphs":[{"context":"c","qas":[{"id":"7","question":"?","answers":[]}]}]}]}`:                                  "bert: f.json: question 7 has no answer; questions without are of SQuAD v2.0, use files of v1.1",
		`{"data":[{"paragraphs":[{"context":"c","qas":[{"id":"7","answers":[{"text":"c"}]},{"id":"7","answers":[{"text":"c"}]}]}]}]}`: `bert: f.json: there are two questions of id "7", or one without`,
	} {
		if _, err := parseSquad([]byte(text), "f.json"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	if _, err := readSquad(filepath.Join(t.TempDir(), "none.json")); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestTheSampleIsInTheFormatOfSquad(t *testing.T) {
	q, err := sampleQuestions()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := flags{}.vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	q.prepare(tok, sizes["tiny"].window)
	if len(q.dropped) != 0 || len(q.train) < 1000 || len(q.dev) < 100 {
		t.Errorf("%d to train with, %d left out, %d to answer", len(q.train), len(q.dropped), len(q.dev))
	}
	several := false
	seen := map[string]bool{}
	for _, one := range q.train {
		seen[one.context] = true
	}
	for _, one := range q.dev {
		several = several || len(one.answers) > 1
		if seen[one.context] {
			t.Errorf("the context of %s is also trained with", one.id)
		}
	}
	if !several {
		t.Error("no question has several answers")
	}
	if len(q.devWindows) <= len(q.dev) {
		t.Error("no context needs several windows")
	}
	for _, w := range append(q.trainWindows, q.devWindows...) {
		for _, p := range w.context {
			if p.ID == tok.Unknown {
				t.Fatalf("window of question %d: a word is not in the vocabulary", w.question)
			}
		}
	}
	info, err := os.Stat("sample/train.json")
	if err != nil || info.Size() > 500_000 {
		t.Errorf("the sample is large: %v, %v", info.Size(), err)
	}
}
