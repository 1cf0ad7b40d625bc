package plan

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/shard"
)

// Choose chooses what a pass applies to the program, as far as the options leave that open, and writes it into them.
func Choose(pass string, p *ir.Program, o *passes.Options) (err error) {
	c := &o.Choices
	switch pass {
	case "regions":
		c.Regions, err = chooseRegions(p, *o)
	case "shard":
		if passes.Partitions(p) {
			var chosen *shard.Chosen
			if chosen, err = shard.Search(p); err == nil {
				c.Shards = chosen.Save(p)
			}
		}
	case "zero":
		c.Zero = passes.ChooseParts(p, *o)
	case "apply-groups":
		c.Groups = chooseGroups(p, *o)
	}
	return err
}
