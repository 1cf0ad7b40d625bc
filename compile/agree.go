package compile

import (
	"fmt"

	"github.com/easyparallel/epl/explain"
	"github.com/easyparallel/epl/ir"
)

// agree returns when all workers have the same plan for a training program, and its number.
func (e *Engine) agree(c *Compiled) (number int, err error) {
	e.mu.Lock()
	e.steppers++
	number = e.steppers
	e.mu.Unlock()
	text := explain.InWords(c.Recorded)
	for _, f := range c.Plan.Facts() {
		text += f.Name + ": " + f.Value + "\n"
	}
	text = ir.Stable(text + c.Final.String() + c.Schedule.String())
	return number, e.opts.Job.Agree(fmt.Sprintf("the plan of training program %d", number), text)
}
