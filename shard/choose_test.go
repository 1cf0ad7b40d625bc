package shard_test

import (
	"fmt"
	"testing"

	"github.com/easyparallel/epl/shard"
)

func TestScratch(t *testing.T) {
	for _, m := range splitModels() {
		whole := recorded(t, m)
		for _, k := range []int{2, 3, 4, 8} {
			p := split(t, whole, k)
			c, err := shard.Search(p)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("=====", m.Name, k, c.Estimates, c.Start, c.Time)
			for _, g := range c.Groups {
				fmt.Print(g.Variables[0].Path, g.Placement, " ")
			}
			r, err := shard.Partition(p, c.Choice)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("\n--", exchanges(p, 0), len(r.Weights), r.Gathered)
		}
	}
}
