// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/pkg/errors"
)

// scanner reads program text. Space and newlines separate words and mean nothing else.
type scanner struct {
	text string
	pos  int
}

func (s *scanner) errorf(format string, args ...any) error {
	line := 1 + strings.Count(s.text[:min(s.pos, len(s.text))], "\n")
	return errors.Errorf("epl: program text, line %d: %s", line, errors.Errorf(format, args...))
}

// peek skips space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.text) && unicode.IsSpace(rune(s.text[s.pos])) {
		s.pos++
	}
	if s.pos == len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

// word reads letters, digits and what numbers are made of.
func (s *scanner) word() string {
	s.peek()
	start := s.pos
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		if !(c == '_' || c == '.' || c == '+' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			break
		}
		s.pos++
	}
	return s.text[start:s.pos]
}

// quoted reads a Go string literal.
func (s *scanner) quoted() (string, error) {
	if s.peek() != '"' {
		return "", s.errorf("expected a quoted string")
	}
	q, err := strconv.QuotedPrefix(s.text[s.pos:])
	if err != nil {
		return "", s.errorf("a string does not end")
	}
	s.pos += len(q)
	text, err := strconv.Unquote(q)
	if err != nil {
		return "", s.errorf("%s is not a string", q)
	}
	return text, nil
}

// expect reads one token literally.
func (s *scanner) expect(token string) error {
	if !s.accept(token) {
		rest := s.text[s.pos:]
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			rest = rest[:i]
		}
		return s.errorf("expected %q, found %q", token, rest[:min(len(rest), 40)])
	}
	return nil
}

// accept reads one token if it comes next.
func (s *scanner) accept(token string) bool {
	s.peek()
	if !strings.HasPrefix(s.text[s.pos:], token) {
		return false
	}
	end := s.pos + len(token)
	if last := token[len(token)-1]; last >= 'a' && last <= 'z' && end < len(s.text) {
		if c := s.text[end]; c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			return false // only the beginning of a longer word
		}
	}
	s.pos = end
	return true
}

// list reads items separated by commas between two brackets.
func (s *scanner) list(open, close byte, item func(i int) error) error {
	if err := s.expect(string(open)); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if s.accept(string(close)) {
			return nil
		}
		if i > 0 {
			if err := s.expect(","); err != nil {
				return err
			}
		}
		if err := item(i); err != nil {
			return err
		}
	}
}
