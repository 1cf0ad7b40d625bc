// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/pkg/errors"
)

// The page is one file with nothing from outside: the picture, labels.js and page.js, to scroll and zoom it, and the report. Its content
// security policy runs no other script.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed labels.js
	labelsJS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.Must(pictureTemplate.Clone()).New("page").Funcs(template.FuncMap{
		"duration": duration,
		"percent":  percent,
		"share":    share,
		"bytes":    bytesText,
		"plain":    plain,
		"digits":   digits,
	}).Parse(pageHTML))
)

// WriteHTML writes a page with the step as a Gantt chart, width pixels wide, in which one can zoom, and its report.
func (s *Step) WriteHTML(w io.Writer, width int) error {
	r := s.Report()
	script := labelsJS + pageJS
	return errors.Wrap(pageTemplate.Execute(w, map[string]any{
		"Program":  plain(s.Program),
		"Which":    s.which(),
		"How":      s.how(),
		"Compared": s.compared.tables(),
		"Pipeline": s.Pipeline,
		"Schedule": plain(s.Pipeline.String()),
		"Clocks":   s.clocks(),
		"Report":   r,
		"Rows":     r.rows(s.Pipeline),
		"Exposed":  r.exposed(),
		"Hidden":   r.hidden(),
		"Picture":  s.draw(r, width, true),
		"CSS":      template.CSS(pageCSS),
		"Script":   template.JS(script),
		"Hash":     scriptHash(script),
	}), "epl: the timeline as a page")
}

// scriptHash is how a content security policy names a script.
func scriptHash(script string) string {
	hash := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(hash[:])
}
