// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"

	"github.com/easyparallel/epl/hf"
)

// window is what the network sees of a question: [CLS] question [SEP] part of the context [SEP], and padding. A context
// that is too long makes several, which overlap.
type window struct {
	question   int        // index of the question
	ids        []int32    // of the word pieces
	segments   []int32    // 0 for the question, 1 for the context
	mask       []int32    // 1 for word pieces, 0 for padding
	context    []hf.Token // word pieces of the context in this window
	first      int        // position of the first of them
	central    []bool     // for each of them: no other window has more of the text around it
	start, end int32      // positions of the answer; 0, which is [CLS], where this window does not have it
}

// windowing says how questions are cut into windows.
type windowing struct {
	length   int // positions of a window
	stride   int // from the start of a window to that of the next, in word pieces of the context
	question int // word pieces of a question; those after it are cut off
}

// windows makes the windows of all questions.
func windows(t *hf.WordPiece, questions []question, w windowing) (all []window) {
	var context []hf.Token
	for i, q := range questions {
		if i == 0 || q.context != questions[i-1].context {
			context = t.Encode(q.context)
		}
		asked := t.Encode(q.text)
		if len(asked) > w.question {
			asked = asked[:w.question]
		}
		first, last := covered(context, q.at)
		parts := cut(len(context), w.length-len(asked)-3, w.stride)
		for n, p := range parts {
			win := w.fill(t, asked, context[p.from:p.to])
			win.question = i
			for at := p.from; at < p.to; at++ {
				win.central = append(win.central, mostCentral(parts, at) == n)
			}
			if p.from <= first && first <= last && last < p.to {
				win.start, win.end = int32(win.first+first-p.from), int32(win.first+last-p.from)
			}
			all = append(all, win)
		}
	}
	return all
}

// fill writes a window down, without its answer.
func (w windowing) fill(t *hf.WordPiece, asked, context []hf.Token) window {
	win := window{context: context, first: len(asked) + 2,
		ids: make([]int32, w.length), segments: make([]int32, w.length), mask: make([]int32, w.length)}
	for i := range win.ids {
		win.ids[i] = t.Pad
	}
	at := 0
	add := func(id, segment int32) {
		win.ids[at], win.segments[at], win.mask[at] = id, segment, 1
		at++
	}
	add(t.Class, 0)
	for _, piece := range asked {
		add(piece.ID, 0)
	}
	add(t.Separator, 0)
	for _, piece := range context {
		add(piece.ID, 1)
	}
	add(t.Separator, 1)
	return win
}

// part is a range of the word pieces of a context.
type part struct{ from, to int }

// cut divides n word pieces into overlapping parts of at most length, each stride after the one before it.
func cut(n, length, stride int) (parts []part) {
	for from := 0; from < n; from += min(length, stride) {
		parts = append(parts, part{from, min(from+length, n)})
		if from+length >= n {
			break
		}
	}
	return parts
}

// mostCentral returns in which part a word piece has the most context on its poorer side, and of equal ones, in the
// longest. A word piece can start an answer in that one only, where the network sees best what it is about.
func mostCentral(parts []part, at int) (best int) {
	bestScore := -1.0
	for i, p := range parts {
		if at < p.from || at >= p.to {
			continue
		}
		if score := float64(min(at-p.from, p.to-1-at)) + 0.01*float64(p.to-p.from); score > bestScore {
			best, bestScore = i, score
		}
	}
	return best
}

// covered returns the first and the last word piece that an answer is made of; first is after last if there is none.
func covered(context []hf.Token, a span) (first, last int) {
	first = slices.IndexFunc(context, func(t hf.Token) bool { return t.End > a.start })
	last, _ = slices.BinarySearchFunc(context, a.end, func(t hf.Token, end int) int { return cmp.Compare(t.Start, end) })
	return first, last - 1
}
