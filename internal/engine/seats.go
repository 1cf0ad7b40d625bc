package engine

import (
	"slices"

	"github.com/easyparallel/epl/cluster"
)

// seats say where the devices of a placement sit: which of a model replica's devices a TaskGraph uses, and which device of
// the job that is in each model replica.
type seats struct {
	places [][]int // by TaskGraph
	ranks  [][]int // by model replica and place
	worker []int   // by model replica: of its first device, which feeds it
}

func seatsOf(p *cluster.Placement) seats {
	s := seats{places: make([][]int, len(p.Virtual)), ranks: make([][]int, p.Replicas), worker: make([]int, p.Replicas)}
	for r := range p.Replicas {
		for i, v := range p.Virtual {
			for _, d := range v.Groups[r] {
				place := slices.Index(s.ranks[r], d.Rank)
				if place < 0 {
					if place = len(s.ranks[r]); place == 0 {
						s.worker[r] = d.Worker
					}
					s.ranks[r] = append(s.ranks[r], d.Rank)
				}
				if r == 0 {
					s.places[i] = append(s.places[i], place)
				}
			}
		}
	}
	return s
}

// perWorker is how many model replicas each worker feeds; nil if there is one worker.
func (s seats) perWorker(c *cluster.Cluster) []int {
	if c.WorkerNum() == 1 {
		return nil
	}
	n := make([]int, c.WorkerNum())
	for _, w := range s.worker {
		n[w]++
	}
	return n
}
