package plan

import (
	"slices"

	"github.com/pkg/errors"

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

// spans tells whether a model replica has devices of several workers.
func (s seats) spans(c *cluster.Cluster) bool {
	for r, ranks := range s.ranks {
		for _, rank := range ranks {
			if c.Device(rank).Worker != s.worker[r] {
				return true
			}
		}
	}
	return false
}

// checkSlicing refuses io.slicing where files would be dealt to workers that do not feed as many model replicas as their
// share: nobody would read some of them, or some too soon.
func (s seats) checkSlicing(c *cluster.Cluster) error {
	fed := s.perWorker(c)
	for w, n := range fed {
		if has := len(c.Workers()[w].Devices); n*len(s.ranks[0]) != has {
			return errors.Errorf("epl: io.slicing deals files to workers by their devices, but worker %d has %d and feeds %d model replicas of %d devices each: "+
				"set io.slicing to false, so that all workers read all files, or let model replicas fit into workers", w, has, n, len(s.ranks[0]))
		}
	}
	return nil
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
