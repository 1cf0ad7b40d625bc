// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
)

// The page is one document with nothing from outside. page.js makes text nodes of whatever it is told, and the content security policy runs no script but page.js.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	hash := sha256.Sum256([]byte(pageJS))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; script-src 'sha256-"+
		base64.StdEncoding.EncodeToString(hash[:])+"'")
	_ = pageTemplate.Execute(w, map[string]any{"Title": s.store.title, "CSS": template.CSS(pageCSS), "Script": template.JS(pageJS)})
}
