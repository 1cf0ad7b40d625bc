// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// structure checks the text of a module: regions close, names are defined once and before their use, uses have the types of
// definitions, and the inputs and outputs of main those of the segment.
func structure(text string, s *ir.Segment) error {
	c := checker{types: map[string]string{}}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := c.line(strings.TrimSpace(line), s); err != nil {
			return fmt.Errorf("line %d: %w\n%s", i+1, err, line)
		}
	}
	if len(c.open) != 0 {
		return fmt.Errorf("%d regions are open at the end", len(c.open))
	}
	if slices.ContainsFunc(c.calls, func(name string) bool { return !slices.Contains(c.funcs, name) }) {
		return fmt.Errorf("it calls %q and has %q", c.calls, c.funcs)
	}
	return nil
}

type checker struct {
	types        map[string]string
	visible      []string // names, innermost last
	open         []frame
	calls, funcs []string
}

// frame is a region.
type frame struct {
	visible int    // how many names there were before it
	op      string // the line that it belongs to, as far as it is known
}

var (
	function  = regexp.MustCompile(`^func\.func (?:public|private) @(\w+)\((.*)\) -> \((.*)\) \{$`)
	parameter = regexp.MustCompile(`(%v\d+): (tensor<[^%{]*>)`)
	operation = regexp.MustCompile(`^(?:(%v\d+(?:, %v\d+)*) = )?("[\w.]+"\([^)]*\)) ?(.*)$`)
	signature = regexp.MustCompile(` ?: \(([^()]*)\) -> \(?([^()]*)\)?$`)
	tensor    = regexp.MustCompile(`tensor<(?:\d+x)*(?:complex<\w+>|\w+)>`)
	name      = regexp.MustCompile(`%v\d+`)
	callee    = regexp.MustCompile(`callee = @(\w+)`)
)

func (c *checker) define(name, typ string) error {
	if _, ok := c.types[name]; ok {
		return fmt.Errorf("%s is defined twice", name)
	}
	c.types[name] = typ
	c.visible = append(c.visible, name)
	return nil
}

func (c *checker) use(names, types []string) error {
	if len(names) != len(types) {
		return fmt.Errorf("%d values and %d types", len(names), len(types))
	}
	for i, n := range names {
		if !slices.Contains(c.visible, n) {
			return fmt.Errorf("%s is not visible", n)
		}
		if c.types[n] != types[i] {
			return fmt.Errorf("%s is %s, not %s", n, c.types[n], types[i])
		}
	}
	return nil
}

func (c *checker) push(op string) { c.open = append(c.open, frame{len(c.visible), op}) }

func (c *checker) pop() (op string, err error) {
	if len(c.open) == 0 {
		return "", fmt.Errorf("nothing is open")
	}
	f := c.open[len(c.open)-1]
	c.open, c.visible = c.open[:len(c.open)-1], c.visible[:f.visible]
	return f.op, nil
}

func (c *checker) line(line string, s *ir.Segment) error {
	if m := function.FindStringSubmatch(line); m != nil {
		c.push("")
		c.funcs = append(c.funcs, m[1])
		var params []string
		for _, p := range parameter.FindAllStringSubmatch(m[2], -1) {
			params = append(params, p[2])
			if err := c.define(p[1], p[2]); err != nil {
				return err
			}
		}
		if results := tensor.FindAllString(m[3], -1); m[1] == "main" && (!slices.Equal(params, typesOf(s.Inputs)) || !slices.Equal(results, typesOf(s.Outputs))) {
			return fmt.Errorf("main does not take and give what the segment does")
		}
		return nil
	}
	switch {
	case strings.HasPrefix(line, "module @") && strings.HasSuffix(line, "{"):
		c.push("")
		return nil
	case line == "}":
		_, err := c.pop()
		return err
	case strings.HasPrefix(line, "^bb0("):
		for _, p := range parameter.FindAllStringSubmatch(line, -1) {
			if err := c.define(p[1], p[2]); err != nil {
				return err
			}
		}
		return nil
	case strings.HasPrefix(line, "return"):
		return c.use(name.FindAllString(line, -1), tensor.FindAllString(line, -1))
	case line == "}, {":
		op, err := c.pop()
		c.push(op)
		return err
	case strings.HasPrefix(line, "})"):
		op, err := c.pop()
		if err != nil {
			return err
		}
		return c.operation(op + strings.TrimPrefix(line, "})"))
	case strings.HasSuffix(line, " ({"):
		c.push(strings.TrimSuffix(line, " ({"))
		return nil
	}
	return c.operation(line)
}

func (c *checker) operation(line string) error {
	if m := callee.FindStringSubmatch(line); m != nil {
		c.calls = append(c.calls, m[1])
	}
	m, sig := operation.FindStringSubmatch(line), signature.FindStringSubmatch(line)
	if m == nil || sig == nil {
		return fmt.Errorf("this is no operation")
	}
	if err := c.use(name.FindAllString(m[2], -1), tensor.FindAllString(sig[1], -1)); err != nil {
		return err
	}
	results, types := name.FindAllString(m[1], -1), tensor.FindAllString(sig[2], -1)
	if len(results) != len(types) {
		return fmt.Errorf("%d results and %d types", len(results), len(types))
	}
	for i, r := range results {
		if err := c.define(r, types[i]); err != nil {
			return err
		}
	}
	return nil
}

// typesOf are the types of values, written by another table than the package's.
func typesOf(vs []*ir.Value) (r []string) {
	for _, v := range vs {
		r = append(r, tensorType(v.Shape))
	}
	return r
}

func tensorType(s shapes.Shape) string {
	t := "tensor<"
	for _, d := range s.Dimensions {
		t += fmt.Sprintf("%dx", d)
	}
	switch d := s.DType; {
	case d == dtypes.Bool:
		t += "i1"
	case d == dtypes.BFloat16:
		t += "bf16"
	case d.IsComplex():
		t += fmt.Sprintf("complex<f%d>", d.Bits()/2)
	case d.IsFloat():
		t += fmt.Sprintf("f%d", d.Bits())
	case d.IsUnsigned():
		t += fmt.Sprintf("ui%d", d.Bits())
	default:
		t += fmt.Sprintf("i%d", d.Bits())
	}
	return t + ">"
}
