// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command pjrtgen writes pjrt/internal/capi from the header of the PJRT C API: a Go struct for every C struct, the enums,
// and the position of every function in the plugin's table.
//
// The header is the one that go-xla ships at the version below; the go command downloads it. A C compiler, if there is one, says
// the sizes and offsets of all structs, which a test of capi compares with Go's.
//
// Run it by "go generate ./pjrt/..." in the module's root.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// headerModule and headerFile say where the header is.
const (
	headerModule = "github.com/gomlx/go-xla@v0.4.4"
	headerFile   = "pjrt/pjrt_c_api.h"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", ".", "the directory of package capi")
	flag.Parse()
	path, err := header()
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	api, err := parse(string(text))
	if err != nil {
		log.Fatal(err)
	}
	src, err := api.goSource()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*dir, "gen_api.go"), src, 0o644); err != nil {
		log.Fatal(err)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		log.Print("pjrtgen: testdata/layout.txt stays as it is: there is no C compiler")
		return
	}
	out, err := api.cLayout(path)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*dir, "testdata", "layout.txt"), out, 0o644); err != nil {
		log.Fatal(err)
	}
}

// header returns the path of the header, which the go command downloads if it is not in the module cache.
func header() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", headerModule)
	cmd.Dir = os.TempDir() // the version is ours, whatever a go.mod says
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if decoded := json.Unmarshal(out, &module); decoded == nil && module.Error != "" {
		return "", errors.Errorf("pjrtgen: %s cannot be downloaded: %s", headerModule, module.Error)
	}
	if err != nil {
		return "", errors.Wrapf(err, "pjrtgen: %s cannot be downloaded", headerModule)
	}
	return filepath.Join(module.Dir, filepath.FromSlash(headerFile)), nil
}

// api is what the header declares.
type api struct {
	major, minor int
	enums        []enum
	structs      []structure
	functions    []string
}

type enum struct {
	name   string // of C
	values []value
}

type value struct {
	name   string // of C
	number int
}

type structure struct {
	name   string // of C
	fields []field
	last   string // the field at which struct_size ends; empty for a struct without one
}

type field struct{ name, ctype string } // of C

var (
	comments      = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	versions      = regexp.MustCompile(`(?m)^#define PJRT_API_(MAJOR|MINOR) (\d+)$`)
	enumDecl      = regexp.MustCompile(`(?s)typedef enum \{(.*?)\}\s*(PJRT_\w+);`)
	structDecl    = regexp.MustCompile(`(?ms)^(?:typedef )?struct (PJRT_\w+) \{\n(.*?)\n\}`)
	traits        = regexp.MustCompile(`PJRT_DEFINE_STRUCT_TRAITS\(\s*(\w+)\s*,\s*(\w+)\s*\);`)
	functionField = regexp.MustCompile(`_PJRT_API_STRUCT_FIELD\((PJRT_\w+)\);`)
	functionPtr   = regexp.MustCompile(`^void \(\* ?(\w+)\)`)

	// A union is the member of it that is as large as the union and aligned like it.
	unions = map[string]*regexp.Regexp{
		"PJRT_Buffer_MemoryLayout_Tiled tiled;": regexp.MustCompile(`(?s)union \{[^}]*PJRT_Buffer_MemoryLayout_Tiled[^}]*\};`),
		"uint64_t value;":                       regexp.MustCompile(`(?s)union \{[^}]*string_value[^}]*\};`),
	}
)

// parse reads the subset of C that the header is written in.
func parse(text string) (*api, error) {
	src := comments.ReplaceAllString(text, "")
	a := &api{}
	for _, m := range versions.FindAllStringSubmatch(src, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, err
		}
		if m[1] == "MAJOR" {
			a.major = n
		} else {
			a.minor = n
		}
	}
	for _, m := range enumDecl.FindAllStringSubmatch(src, -1) {
		e, next := enum{name: m[2]}, 0
		for text := range strings.SplitSeq(m[1], ",") {
			name, number, set := strings.Cut(strings.TrimSpace(text), "=")
			if name == "" {
				continue
			}
			if set {
				n, err := strconv.Atoi(strings.TrimSpace(number))
				if err != nil {
					return nil, errors.Wrapf(err, "pjrtgen: enum %s", e.name)
				}
				next = n
			}
			e.values = append(e.values, value{strings.TrimSpace(name), next})
			next++
		}
		a.enums = append(a.enums, e)
	}
	last := map[string]string{}
	for _, m := range traits.FindAllStringSubmatch(src, -1) {
		last[m[1]] = m[2]
	}
	for _, m := range structDecl.FindAllStringSubmatch(src, -1) {
		if m[1] == "PJRT_Api" {
			continue
		}
		body := m[2]
		for member, union := range unions {
			body = union.ReplaceAllString(body, member)
		}
		s := structure{name: m[1]}
		for declaration := range strings.SplitSeq(body, ";") {
			declaration = strings.Join(strings.Fields(declaration), " ")
			if f := functionPtr.FindStringSubmatch(declaration); f != nil {
				s.fields = append(s.fields, field{f[1], "function"})
			} else if i := strings.LastIndex(declaration, " "); i > 0 {
				s.fields = append(s.fields, field{declaration[i+1:], declaration[:i]})
			}
		}
		if len(s.fields) > 0 && s.fields[0].name == "struct_size" {
			s.last = last[s.name]
		}
		a.structs = append(a.structs, s)
	}
	for _, m := range functionField.FindAllStringSubmatch(src, -1) {
		a.functions = append(a.functions, m[1])
	}
	if a.minor == 0 || len(a.enums) == 0 || len(a.structs) == 0 || len(a.functions) == 0 {
		return nil, errors.Errorf("pjrtgen: this is not the header of the PJRT C API: version %d.%d, %d enums, %d structs, %d functions",
			a.major, a.minor, len(a.enums), len(a.structs), len(a.functions))
	}
	return a, nil
}

// goName drops the prefix and the underscores: PJRT_Client_Create_Args becomes ClientCreateArgs, struct_size StructSize.
func goName(c string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(c, "PJRT_"), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// goType returns the Go type of a field.
func (a *api) goType(f field) (string, error) {
	c := strings.TrimPrefix(f.ctype, "const ")
	if strings.HasSuffix(f.name, "user_arg") || f.name == "callback_data" || f.name == "deleter_arg" || f.name == "on_delete_callback_arg" {
		return "uintptr", nil // a key or an address of C
	}
	switch c {
	case "size_t", "uintptr_t", "intptr_t", "function":
		return "uintptr", nil
	case "int", "int32_t":
		return "int32", nil
	case "int64_t":
		return "int64", nil
	case "uint64_t":
		return "uint64", nil
	case "bool":
		return "bool", nil
	}
	memory := false // whether it points to something that has a size
	for _, e := range a.enums {
		if e.name == c {
			return "int32", nil
		}
		memory = memory || e.name+"*" == c
	}
	for _, s := range a.structs {
		if s.name == c {
			return goName(c), nil
		}
		memory = memory || s.name+"*" == c
	}
	base, pointer := strings.CutSuffix(c, "*")
	switch {
	case pointer && strings.HasPrefix(base, "PJRT_") && !strings.HasSuffix(base, "*") && !strings.HasSuffix(base, "const") && (!memory || base == "PJRT_Extension_Base"):
		return "uintptr", nil // a handle of C, which Go does not look into
	case pointer:
		return "unsafe.Pointer", nil // memory of Go or C
	case strings.HasSuffix(c, "Callback"), strings.HasSuffix(c, "_ValueDeleter"), strings.HasSuffix(c, "Visitor"):
		return "uintptr", nil // a function
	}
	return "", errors.Errorf("pjrtgen: field %s has an unknown type, %q", f.name, f.ctype)
}

// named are the enums whose values are printed for people.
var named = map[string]bool{"PJRT_Error_Code": true, "PJRT_Buffer_Type": true}

// goSource returns the generated file.
func (a *api) goSource() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by internal/pjrtgen from %s of %s. DO NOT EDIT.\n\npackage capi\n\nimport \"unsafe\"\n\n", headerFile, headerModule)
	fmt.Fprintf(&b, "// The version of the API that the header describes.\nconst (\n\tMajor = %d\n\tMinor = %d\n)\n\n", a.major, a.minor)
	for _, e := range a.enums {
		fmt.Fprintf(&b, "// Values of %s.\nconst (\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(&b, "\t%s int32 = %d\n", goName(v.name), v.number)
		}
		b.WriteString(")\n\n")
		if named[e.name] {
			fmt.Fprintf(&b, "// %sNames are the names of the values of %s.\nvar %[1]sNames = map[int32]string{\n", goName(e.name), e.name)
			for _, v := range e.values {
				fmt.Fprintf(&b, "\t%d: %q,\n", v.number, strings.TrimPrefix(v.name, e.name+"_"))
			}
			b.WriteString("}\n\n")
		}
	}
	for _, s := range a.structs {
		fmt.Fprintf(&b, "// %s is %s.\ntype %[1]s struct {\n", goName(s.name), s.name)
		for _, f := range s.fields {
			t, err := a.goType(f)
			if err != nil {
				return nil, errors.WithMessage(err, s.name)
			}
			fmt.Fprintf(&b, "\t%s %s\n", goName(f.name), t)
		}
		b.WriteString("}\n\n")
		if s.last != "" {
			fmt.Fprintf(&b, "// SetSize says how much of the struct Go knows of.\nfunc (s *%s) SetSize() { s.StructSize = unsafe.Offsetof(s.%[2]s) + unsafe.Sizeof(s.%[2]s) }\n\n", goName(s.name), goName(s.last))
		}
	}
	b.WriteString("// Structs holds one value of every struct, for the test of their layout.\nvar Structs = []any{\n")
	for _, s := range a.structs {
		fmt.Fprintf(&b, "\t%s{},\n", goName(s.name))
	}
	b.WriteString("}\n\n// The positions of the functions in the table.\nconst (\n")
	for i, f := range a.functions {
		fmt.Fprintf(&b, "\t%s Func = %d\n", goName(f), i)
	}
	b.WriteString(")\n\n// functionNames are the names of the functions, by position.\nvar functionNames = [...]string{\n")
	for _, f := range a.functions {
		fmt.Fprintf(&b, "\t%q,\n", f)
	}
	b.WriteString("}\n")
	src, err := format.Source(b.Bytes())
	return src, errors.Wrap(err, "pjrtgen: what it generated is no Go")
}

// cLayout compiles and runs a C program that prints the sizes and offsets of all structs, and what the header has callers
// put into struct_size.
func (a *api) cLayout(header string) ([]byte, error) {
	var c strings.Builder
	fmt.Fprintf(&c, "#include <stdio.h>\n#include %q\nint main() {\n", header)
	for _, s := range a.structs {
		fmt.Fprintf(&c, "printf(\"%s %%zu\\n\", sizeof(struct %s));\n", goName(s.name), s.name)
		if s.last != "" {
			fmt.Fprintf(&c, "printf(\"%s.SetSize %%zu\\n\", (size_t)%s_STRUCT_SIZE);\n", goName(s.name), s.name)
		}
		for _, f := range s.fields {
			member := f.name
			if s.name == "PJRT_NamedValue" && member == "value" {
				member = "string_value" // of the union
			}
			fmt.Fprintf(&c, "printf(\"%s.%s %%zu\\n\", offsetof(struct %s, %s));\n", goName(s.name), goName(f.name), s.name, member)
		}
	}
	c.WriteString("return 0; }\n")
	dir, err := os.MkdirTemp("", "pjrtgen")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(c.String()), 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-o", program, source).CombinedOutput(); err != nil {
		return nil, errors.Wrapf(err, "pjrtgen: the C compiler: %s", out)
	}
	return exec.Command(program).Output()
}
