package shard

import (
	"fmt"

	"github.com/easyparallel/epl/ir"
)

func Debug(p *ir.Program) {
	c, _ := newChooser(p)
	c.start()
	for _, s := range c.seeds() {
		e := c.estimate(s.state)
		fmt.Println(s.name, c.price(s.state), e)
		for i, x := range c.vars {
			if x.v.Param.Shape.Rank() > 1 || x.follows == nil {
				fmt.Print(" ", x.v.Path, c.placement(s.state, i))
			}
		}
		vars, _ := c.shard(c.choice(s.state))
		fmt.Printf("\n %+v\n", c.count(c.propagate(vars), vars))
	}
}
