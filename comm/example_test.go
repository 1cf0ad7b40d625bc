// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm_test

import (
	"fmt"
	"log"
	"sync"

	"github.com/easyparallel/epl/comm"
)

// Four ranks average their gradients; then the even ones and the odd ones do something of their own.
func Example() {
	world, err := comm.NewInProcess(4, comm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()

	gradients := [][]float32{{1, 10}, {2, 20}, {3, 30}, {6, 60}}
	sums := make([][]int32, 4)
	var wg sync.WaitGroup
	for rank := range 4 {
		wg.Go(func() {
			if err := train(world, rank, gradients[rank]); err != nil {
				world.Abort(err) // wakes the others
			}
			sums[rank] = []int32{int32(rank)}
			if err := addToNeighbour(world, rank, sums[rank]); err != nil {
				world.Abort(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(gradients)
	fmt.Println(sums)
	fmt.Println(world.Counters(0)["all-reduce"])
	// Output:
	// [[3 30] [3 30] [3 30] [3 30]]
	// [[2] [4] [2] [4]]
	// {2 12}
}

func train(world *comm.World, rank int, gradient []float32) error {
	c, err := world.All().Communicator(rank, 0)
	if err != nil {
		return err
	}
	mean := c.Start(comm.Call{Program: "train", Op: comm.AllReduce, Buf: gradient, Scale: 1.0 / 4})
	// Compute something else meanwhile.
	return mean.Wait()
}

func addToNeighbour(world *comm.World, rank int, x []int32) error {
	group, err := world.Group([]int{rank % 2, rank%2 + 2})
	if err != nil {
		return err
	}
	c, err := group.Communicator(rank, 0)
	if err != nil {
		return err
	}
	return c.AllReduce(x, comm.Sum)
}
