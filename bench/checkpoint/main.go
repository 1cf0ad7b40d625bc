// Command checkpoint measures what saving a checkpoint costs a step, and what loading it takes of time, disk and memory on each worker.
//
//	go run ./bench/checkpoint                       # 1 GB of state on one device
//	go run ./bench/checkpoint -devices 2 -zero v1
//	go run ./bench/checkpoint -copies 1             # copies in memory (recovery.copies), by one worker
//
// Steps with and without a save alternate. A save costs what the steps take longer until it is on disk: the wait for the copy in memory, and what
// copying and writing take from devices that have the same cores.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/easyparallel/epl/launch"
)

// job is what is measured.
type job struct {
	State   int64 // bytes of variables
	Batch   int   // samples of a device
	Devices int
	Zero    string
	Rounds  int
	Dir     string
	Workers []int // that load, each number in a run of its own
	Loads   bool  // this process is one of them
	Copies  int   // workers that copy to memory, instead; 0: none
	Copied  bool  // this process is one of them
}

func main() {
	var j job
	flag.Int64Var(&j.State, "state", 1<<30, "bytes of weights and optimizer state")
	flag.IntVar(&j.Batch, "batch", 640, "samples of a device and step")
	flag.IntVar(&j.Devices, "devices", 1, "devices of the job that saves")
	flag.StringVar(&j.Zero, "zero", "", "zero.level of the job that saves")
	flag.IntVar(&j.Rounds, "rounds", 3, "saves that are measured")
	flag.StringVar(&j.Dir, "dir", "", "folder of checkpoints; default: a temporary one")
	flag.BoolVar(&j.Loads, "load", false, "only load, as one of the workers that the command starts")
	flag.IntVar(&j.Copies, "copies", 0, "measure copies in memory instead, made by so many workers")
	flag.BoolVar(&j.Copied, "copy", false, "only copy, as one of the workers that the command starts")
	if len(os.Args) > 1 && os.Args[1] == "--guard" { // of the launcher of these
		launch.Guard(os.Stdin)
		return
	}
	flag.Parse()
	j.Workers = []int{1, 2, 4}
	if err := j.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (j job) run() error {
	switch {
	case j.Loads:
		return j.load()
	case j.Copied:
		return j.copy()
	case j.Copies > 0:
		return j.copies()
	}
	if j.Dir == "" {
		dir, err := os.MkdirTemp("", "checkpoints")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		j.Dir = dir
	}
	if err := j.save(); err != nil {
		return err
	}
	return j.loads()
}

// round is a save, and the steps before and after its beginning.
type round struct {
	plain []time.Duration // of steps without a save
	begun time.Duration   // that OnStep took
	first time.Duration   // of the step after it
	more  time.Duration   // that the steps until the end of the save took longer than as many plain ones
	steps int             // these are
	saved time.Duration   // until it was on disk
}

// save trains and saves, and prints what that cost.
func (j job) save() error {
	t, err := j.trainer(nil)
	if err != nil {
		return err
	}
	defer t.env.Close()
	step := func() (time.Duration, error) {
		start := time.Now()
		_, err := t.loop.RunSteps(t.data, 1)
		return time.Since(start), err
	}
	for range 2 { // the first compiles
		if _, err := step(); err != nil {
			return err
		}
	}
	var rounds []round
	for range j.Rounds {
		var r round
		for range 3 {
			d, err := step()
			if err != nil {
				return err
			}
			r.plain = append(r.plain, d)
		}
		start := time.Now()
		if err := t.saver.OnStep(t.loop, nil); err != nil {
			return err
		}
		r.begun = time.Since(start)
		over := make(chan error, 1)
		go func() {
			err := t.saver.Wait()
			r.saved = time.Since(start)
			over <- err
		}()
		plain := median(r.plain)
		for done := false; !done; {
			d, err := step()
			if err != nil {
				return err
			}
			if r.steps == 0 {
				r.first = d
			}
			r.steps++
			r.more += d - plain
			select {
			case err := <-over:
				if done = true; err != nil {
					return err
				}
			default:
			}
		}
		r.more += r.begun
		rounds = append(rounds, r)
	}
	print(t.bytes, rounds)
	return nil
}

// print prints the table of the saves.
func print(bytes int64, rounds []round) {
	fmt.Printf("%.2f GB of state\n\n", float64(bytes)/1e9)
	fmt.Println("| | step without a save | OnStep takes | step in which it begins | longer by | steps until it is on disk | these take longer by, of a step | on disk after |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	var shares, all []float64
	for i, r := range rounds {
		plain := median(r.plain)
		shares = append(shares, (r.begun+r.first-plain).Seconds()/plain.Seconds())
		all = append(all, r.more.Seconds()/plain.Seconds())
		fmt.Printf("| save %d | %.2f s | %.1f ms | %.2f s | %.1f %% | %d | %.1f %% | %.1f s |\n", i+1, plain.Seconds(), 1000*r.begun.Seconds(), r.first.Seconds(),
			100*shares[i], r.steps, 100*all[i], r.saved.Seconds())
	}
	fmt.Printf("\nmedian: a save makes the step longer by %.1f %%, and all steps until it is on disk by %.1f %% of a step\n", 100*median(shares), 100*median(all))
}

// median is that of some numbers.
func median[T float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
