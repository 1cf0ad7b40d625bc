// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// job is workers that have met, all in this process.
type job struct {
	agree func(worker int, subject, text string) error
	end   func()
}

// ourJob lets workers meet.
func ourJob(workers int) (*job, error) {
	security := wire.Security{Token: wire.NewToken()}
	server, err := rendezvous.NewServer("127.0.0.1:0", rendezvous.ServerOptions{Workers: workers, Security: security})
	if err != nil {
		return nil, err
	}
	members := make([]*rendezvous.Member, workers)
	err = onAll(workers, func(i int) (err error) {
		members[i], err = rendezvous.Join(context.Background(), rendezvous.Options{
			URL: "tcp://" + server.Addr().String(), Security: security, Workers: workers, Index: i, Host: fmt.Sprint("host", i),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &job{
		agree: func(i int, subject, text string) error { return members[i].Agree(context.Background(), subject, text) },
		end: func() {
			_ = onAll(workers, func(i int) error { return members[i].Leave() })
			_ = server.Close()
		},
	}, nil
}

// onAll calls f for all workers at the same time, and returns an error of one of them.
func onAll(workers int, f func(i int) error) (err error) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for i := range workers {
		group.Go(func() {
			if e := f(i); e != nil {
				mu.Lock()
				defer mu.Unlock()
				err = e
			}
		})
	}
	group.Wait()
	return err
}

// meet measures how long workers take to meet.
func meet(start func(int) (*job, error), workers int) func() (string, error) {
	return func() (string, error) {
		var took []time.Duration
		for range 100 {
			begin := time.Now()
			j, err := start(workers)
			if err != nil {
				return "", err
			}
			took = append(took, time.Since(begin))
			j.end()
		}
		return spread(took), nil
	}
}

// agree measures how long workers take to agree on a text that they all have.
func agree(start func(int) (*job, error), workers int) func() (string, error) {
	return func() (string, error) {
		j, err := start(workers)
		if err != nil {
			return "", err
		}
		defer j.end()
		const rounds = 3000
		text := strings.Repeat("variable\tfloat32[1024,1024]\n", 100)
		var took []time.Duration
		err = onAll(workers, func(i int) error {
			for range rounds {
				begin := time.Now()
				if err := j.agree(i, "the plan", text); err != nil {
					return err
				}
				if i == 0 {
					took = append(took, time.Since(begin))
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		return spread(took), nil
	}
}

// idle measures what a worker costs that only gives signs of life, its part of the server included.
func idle(start func(int) (*job, error), workers int) func() (string, error) {
	return func() (string, error) {
		used, goroutines := memory(), runtime.NumGoroutine()
		j, err := start(workers)
		if err != nil {
			return "", err
		}
		defer j.end()
		time.Sleep(3 * time.Second)
		return fmt.Sprintf("%.0f KB and %.1f goroutines for each", float64(memory()-used)/1024/float64(workers),
			float64(runtime.NumGoroutine()-goroutines)/float64(workers)), nil
	}
}

// memory returns the bytes of the heap and of stacks that are in use.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
