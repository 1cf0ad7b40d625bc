package compile

import (
	"fmt"
	"io"

	"github.com/easyparallel/epl/config"
)

// logAMP returns where mixed precision says what it decides: nowhere, unless amp.debug_log is on.
func (c *Compiled) logAMP(a config.AMP) func(line string) {
	if !a.DebugLog {
		return nil
	}
	return func(line string) { c.AMP = append(c.AMP, line) }
}

// printDecisions writes what amp.debug_log asks for.
func (c *Compiled) printDecisions(w io.Writer) {
	for _, line := range c.AMP {
		_, _ = fmt.Fprintf(w, "%s\n", line) // it has nowhere else to go
	}
}

// noteLossScale tells a user what the loss is multiplied by.
func (c *Compiled) noteLossScale(a config.AMP) {
	switch {
	case a.Level == "" || !c.Recorded.IsTraining():
	case !a.LossScale.Dynamic:
		c.Notes = append(c.Notes, fmt.Sprintf("loss scale: %s; a step whose gradients are not finite is skipped, many in a row are warned of", a.LossScale))
	case a.DType == config.Float16:
		c.Notes = append(c.Notes, "loss scale: dynamic; a step whose gradients are not finite is skipped and halves it, many good ones double it; "+
			"many skipped ones in a row are warned of")
	}
}
