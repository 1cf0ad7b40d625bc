// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testdata/words.json has what Python's module regex makes of GPT-2's expression.
func TestWordsAreThoseOfGPT2(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "words.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases [][2]any
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		text, want := c[0].(string), c[1].([]any)
		var got []any
		for at := 0; at < len(text); {
			n := word(text[at:])
			got = append(got, text[at:at+n])
			at += n
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
	if len(cases) < 50 {
		t.Errorf("%d cases", len(cases))
	}
}

// small is a tokenizer that knows a few merges, by rank.
func small(t *testing.T, merges ...string) *BPE {
	t.Helper()
	vocab := map[string]int32{EndOfText: 0}
	for _, r := range byteNames {
		vocab[string(r)] = int32(len(vocab))
	}
	var all []mergeText
	for _, m := range merges {
		var pair mergeText
		if err := pair.parse(m); err != nil {
			t.Fatal(err)
		}
		all = append(all, pair)
		vocab[pair[0]+pair[1]] = int32(len(vocab))
	}
	b, err := makeBPE(vocab, all, []addedToken{{ID: 0, Content: EndOfText, Special: true}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pieces(b *BPE, text string) string {
	var all []string
	for _, token := range b.Encode(text) {
		all = append(all, b.names[token.ID]+"="+text[token.Start:token.End])
	}
	return strings.Join(all, "|")
}

func TestPairsAreMergedInTheOrderOfTheFile(t *testing.T) {
	b := small(t, "a b", "b c", "ab c", "a a", "Ġ a", "aa aa")
	for text, want := range map[string]string{
		"":                   "",
		"abc":                "abc=abc",
		"bc abc":             "bc=bc|Ġ= |abc=abc", // "a b" comes before "Ġ a"
		" ac":                "Ġa= a|c=c",
		"aaa":                "aa=aa|a=a",
		"aaaaa":              "aaaa=aaaa|a=a",
		"é":                  "Ã=\xc3|©=\xa9",
		"ab<|endoftext|>ab":  "ab=ab|<|endoftext|>=<|endoftext|>|ab=ab",
		"<|endoftext|":       "<=<||=||e=e|n=n|d=d|o=o|f=f|t=t|e=e|x=x|t=t||=|",
		"ab\xffab":           "ab=ab|ÿ=\xff|ab=ab", // no UTF-8
		"abc's":              "abc=abc|'='|s=s",
		"bcbc\n\n\tbc   abc": "bc=bc|bc=bc|Ċ=\n|Ċ=\n|ĉ=\t|bc=bc|Ġ= |Ġ= |Ġ= |abc=abc",
	} {
		if got := pieces(b, text); got != want {
			t.Errorf("%q\n got %s\nwant %s", text, got, want)
		}
	}
}

// A very long word is merged, too: it takes no quadratic time.
func TestLongWordsAreMerged(t *testing.T) {
	b := small(t, "a a", "aa aa")
	const n = 1 << 17
	if got := b.Encode(strings.Repeat("a", n)); len(got) != n/4 || got[len(got)-1].End != n {
		t.Errorf("%d tokens", len(got))
	}
}

func TestATrainedTokenizerSurvivesItsFile(t *testing.T) {
	text := strings.Repeat("the cat sat on the mat. The cats' hats; naïve café\n", 20)
	trained, err := TrainBPE(text, 280)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := trained.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	read, err := ReadTokenizer(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	again, err := TrainBPE(text, 280)
	if err != nil {
		t.Fatal(err)
	}
	ids := IDs(trained, text)
	if !slices.Equal(ids, IDs(read, text)) || !slices.Equal(ids, IDs(again, text)) || read.Size() != trained.Size() {
		t.Error("the tokenizer of the file is another one, or training is not deterministic")
	}
	if read.Size() != 280 || len(ids)*2 > len(text) || read.Decode(ids) != text {
		t.Errorf("%d tokens of %d for %d bytes: %q", len(ids), read.Size(), len(text), read.Decode(ids))
	}
	if id, ok := read.ID(EndOfText); !ok || id != 0 {
		t.Error(id, ok)
	}
	if _, err := TrainBPE(text, 256); err == nil || !strings.Contains(err.Error(), "at least 257 tokens") {
		t.Error(err)
	}
	if few, err := TrainBPE("ab ab", 1000); err != nil || few.Size() != 258 {
		t.Error(few.Size(), err)
	}
}

// GPT-2 was published as two files.
func TestVocabAndMergesAreATokenizer(t *testing.T) {
	b := small(t, "a b", "ab c")
	folder := t.TempDir()
	vocab, err := json.Marshal(b.ids)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"vocab.json": string(vocab), "merges.txt": "#version: 0.2\na b\r\nab c\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read, err := ReadTokenizer(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := read.Encode("abc ab<|endoftext|>"), b.Encode("abc ab<|endoftext|>"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := ReadTokenizer(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no tokenizer") {
		t.Error(err)
	}
}

func TestTokenizersThatAreOthersAreRefused(t *testing.T) {
	good, err := small(t, "a b").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]string{
		"is no tokenizer.json":                       `{`,
		`its model is "Unigram"`:                     `"type":"BPE" "type":"Unigram"`,
		"it has a normalizer, NFC":                   `"normalizer":null "normalizer":{"type":"NFC"}`,
		"its pre_tokenizer is not ByteLevel":         `"pre_tokenizer":{"type":"ByteLevel" "pre_tokenizer":{"type":"Whitespace"`,
		"its pre_tokenizer has add_prefix_space":     `"add_prefix_space":false "add_prefix_space":true`,
		"its model has dropout":                      `"dropout":null "dropout":0.1`,
		"the merge of \"a\" and \"c\" is of tokens":  `"a b" "a c"`,
		`the merge "a" is not two tokens`:            `"a b" "a"`,
		"has no token for the byte 97":               `"a":98 "ab":98`,
		"has the ID -1":                              `"b":99 "b":-1`,
		"the ID 98 is that of":                       `"b":99 "b":98`,
		"has single_word, lstrip or rstrip":          `"lstrip":false "lstrip":true`,
		`its added token ""`:                         `"content":"<|endoftext|>" "content":""`,
		"stands for no byte":                         `"b":99 "b":99,"中":300`,
		`"<|endoftext|>" has the IDs 5 and 0`:        `"<|endoftext|>":0 "<|endoftext|>":5`,
		"its model has dropout, continuing_subword_": `"continuing_subword_prefix":"" "continuing_subword_prefix":"##"`,
	} {
		text := change
		if from, to, ok := strings.Cut(change, `" "`); ok {
			text = strings.Replace(string(good), from+`"`, `"`+to, 1)
		} else if from, to, ok := strings.Cut(change, ` "`); ok {
			text = strings.Replace(string(good), from, `"`+to, 1)
		}
		if text == string(good) {
			t.Errorf("%s: nothing changed", change)
		}
		if _, err := ParseTokenizer([]byte(text), "t.json"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "t.json") {
			t.Errorf("%s: %v", change, err)
		}
	}
	if got, err := ParseTokenizer(good, "t.json"); err != nil || got.Size() != 258 {
		t.Error(got, err)
	}
}

func TestATokenizerFileOfBERTIsReadAsItsVocabulary(t *testing.T) {
	text := `{"added_tokens":[],"normalizer":{"type":"BertNormalizer","clean_text":true,"lowercase":true,"strip_accents":null},
		"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",
		"vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"un":4,"##able":5}}}`
	tok, err := ParseTokenizer([]byte(text), "t.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := IDs(tok, "Unable x"); !slices.Equal(got, []int32{4, 5, 1}) || tok.Decode(got) != "unable [UNK]" {
		t.Errorf("%v %q", got, tok.Decode(got))
	}
	cased := strings.Replace(text, `"lowercase":true`, `"lowercase":false`, 1)
	if _, err := ParseTokenizer([]byte(cased), "t.json"); err == nil || !strings.Contains(err.Error(), "uncased") {
		t.Error(err)
	}
}

// Whatever a text is, its tokens follow each other without a gap, and decode to it. Whatever a file is, reading it is an error or a tokenizer.
func FuzzTokenizer(f *testing.F) {
	b, err := TrainBPE("the cat sat on the mat, the cats sat", 280)
	if err != nil {
		f.Fatal(err)
	}
	file, err := b.MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add("the cat", string(file))
	f.Add("a\xff\x00  \n'll 中<|endoftext|>", `{"model":{"type":"BPE","merges":[["a"]]}}`)
	f.Fuzz(func(t *testing.T, text, file string) {
		end := 0
		for _, token := range b.Encode(text) {
			if token.Start != end || token.End <= end {
				t.Fatalf("%q: a token from %d to %d after %d", text, token.Start, token.End, end)
			}
			end = token.End
		}
		if got := b.Decode(IDs(b, text)); got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if other, err := ParseTokenizer([]byte(file), "fuzz"); err == nil {
			other.Decode(IDs(other, text))
		}
	})
}
