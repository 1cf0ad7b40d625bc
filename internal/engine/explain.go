package engine

import (
	"io"
	"strings"
)

// Explain prints how every program was understood.
func (e *Engine) Explain(w io.Writer) error {
	var s strings.Builder
	for i, c := range e.Programs() {
		if i > 0 {
			s.WriteString("\n")
		}
		c.explain(&s, i+1)
	}
	_, err := io.WriteString(w, s.String())
	return err
}
