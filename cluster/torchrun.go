// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// The variables by which torchrun, and what starts programs in its way, describes a job to a worker.
const (
	torchRank, torchWorkers = "RANK", "WORLD_SIZE"
	torchHost, torchPort    = "MASTER_ADDR", "MASTER_PORT"
)

// torchrun finds a process that PyTorch's launcher started, or one that was given the same variables.
func (env environment) torchrun() (a Allocation, found bool, err error) {
	if found, err := env.pair(torchRank, torchWorkers); !found || err != nil {
		return a, false, err
	}
	a = Allocation{By: "torchrun"}
	if a.Workers, err = env.count(torchWorkers); err != nil {
		return a, false, err
	}
	if a.Index, err = env.task(torchRank, torchWorkers, a.Workers); err != nil {
		return a, false, err
	}
	var job []string
	for _, name := range []string{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", torchPort} {
		if value, set := env.get(name); set {
			job = append(job, value)
		}
	}
	a.Job = strings.Join(job, "-")
	if _, set := env.get("LOCAL_WORLD_SIZE"); set {
		if a.LocalWorkers, err = env.count("LOCAL_WORLD_SIZE"); err != nil {
			return a, false, err
		}
		a.LocalIndex, err = env.task("LOCAL_RANK", "LOCAL_WORLD_SIZE", a.LocalWorkers)
		return a, err == nil, err
	}
	host, _ := env.get(torchHost)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		a.LocalWorkers, a.LocalIndex = a.Workers, a.Index // other machines could not reach the first worker
	} else {
		a.LocalWorkers = 1
	}
	return a, true, nil
}

// byTorchrun tells whether torchrun itself started this process: then it did so last, also as a task of Slurm or MPI.
func (env environment) byTorchrun() bool {
	_, set := env.get("TORCHELASTIC_RUN_ID")
	return set
}

// pair tells whether two variables are set that belong together.
func (env environment) pair(a, b string) (bool, error) {
	_, hasA := env.get(a)
	_, hasB := env.get(b)
	if hasA == hasB {
		return hasA, nil
	}
	if hasB {
		a, b = b, a
	}
	value, _ := env.get(a)
	return false, errors.Errorf("epl: %s=%q is set, but %s is not; torchrun sets both: set both, or neither", a, value, b)
}

// fact is a number that counts, and who says it. One below 0 is not known.
type fact struct {
	by string
	n  int
}

// agree refuses torchrun's variables where they contradict how many workers there are, or which this one is.
func (env environment) agree(workers, index fact) error {
	found, err := env.pair(torchRank, torchWorkers)
	if !found || err != nil {
		return err
	}
	for _, check := range []struct {
		name string
		fact
	}{{torchWorkers, workers}, {torchRank, index}} {
		value, _ := env.get(check.name)
		if n, err := strconv.Atoi(value); check.n >= 0 && (err != nil || n != check.n) {
			return errors.Errorf("epl: %s=%q contradicts %s, which says %d; unset %s and %s, or make them equal",
				check.name, value, check.by, check.n, torchRank, torchWorkers)
		}
	}
	return nil
}

// master returns where torchrun's variables let the workers of an allocation meet, if they say.
func (env environment) master(a Allocation) (address string, found bool, err error) {
	if found, err = env.pair(torchHost, torchPort); !found || err != nil {
		return "", false, err
	}
	host, _ := env.get(torchHost)
	value, _ := env.get(torchPort)
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > 65535 {
		return "", false, errors.Errorf("epl: %s=%q: expected a number from 1 to 65535", torchPort, value)
	}
	if used, _ := env.get("TORCHELASTIC_USE_AGENT_STORE"); strings.EqualFold(used, "true") {
		port = a.port() // torchrun listens at its own
	}
	return net.JoinHostPort(host, fmt.Sprint(port)), true, nil
}
