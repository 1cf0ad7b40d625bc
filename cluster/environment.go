// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// The variables by which the launcher describes the job to each of its workers. A variable that is set to blanks
// counts as not set.
const (
	// EnvNumWorkers is the number of workers in the job. Where it is not set there is one, and of the other variables only
	// EnvDevicesPerWorker may be set.
	EnvNumWorkers = "EPL_NUM_WORKERS"
	// EnvWorkerIndex is the index of this worker, from 0. It may be left out in a job of one worker. It is the only
	// one of these variables that differs between the workers of a job.
	EnvWorkerIndex = "EPL_WORKER_INDEX"
	// EnvDevicesPerWorker is the number of devices of every worker ("4"), or of each worker in turn ("4,4,2").
	// Where it is not set, every worker has as many as the program asks for in its code, else 1.
	EnvDevicesPerWorker = "EPL_DEVICES_PER_WORKER"
	// EnvWorkerHosts names the machine of each worker, separated by commas. Optional.
	EnvWorkerHosts = "EPL_WORKER_HOSTS"
	// EnvGeneration says how often the workers of an elastic job have been started, this time included. It is set in elastic jobs only.
	EnvGeneration = "EPL_GENERATION"
	// EnvGenerationEnd is the step that training ended at in the generation before; it is set from the second one on, if that is known.
	EnvGenerationEnd = "EPL_GENERATION_END"
)

// MaxDevicesPerWorker bounds the devices of one worker. Machines have a few; a number far above is a slip of the pen, and
// would take the machine's memory and threads before anything says so.
const MaxDevicesPerWorker = 1024

// FromEnvironment returns the cluster that the launcher describes in the environment or, where it describes none, one
// worker with the devices of EPL_DEVICES_PER_WORKER or the program's own. The environment is read through lookup:
// os.LookupEnv, unless in a test.
//
// localDevices is the number of devices that the program asks for in its code (epl.WithLocalDevices), 0 if it does
// not: then it is the launcher's, else 1. It must not contradict the launcher's. visible is as in [Spec].
func FromEnvironment(lookup func(string) (string, bool), localDevices int, visible []int) (*Cluster, error) {
	if localDevices < 0 {
		return nil, errors.Errorf("epl: WithLocalDevices(%d): expected a number of at least 1", localDevices)
	}
	if localDevices > MaxDevicesPerWorker {
		return nil, errors.Errorf("epl: WithLocalDevices(%d): a worker has at most %d devices, because each has threads and memory "+
			"of its own; ask for fewer, or use more workers", localDevices, MaxDevicesPerWorker)
	}
	env := environment(lookup)
	workers, err := env.numWorkers()
	if err != nil {
		return nil, err
	}
	spec := Spec{Visible: visible}
	if spec.WorkerIndex, err = env.workerIndex(workers); err != nil {
		return nil, err
	}
	if spec.Devices, err = env.devices(workers, localDevices); err != nil {
		return nil, err
	}
	if launcher := spec.Devices[spec.WorkerIndex]; localDevices > 0 && localDevices != launcher {
		value, _ := env.get(EnvDevicesPerWorker)
		return nil, errors.Errorf("epl: WithLocalDevices(%d) contradicts %s=%q, which gives worker %d %s; "+
			"make them equal, or leave WithLocalDevices out",
			localDevices, EnvDevicesPerWorker, value, spec.WorkerIndex, words.Count(launcher, "device"))
	}
	if spec.Hosts, err = env.hosts(workers); err != nil {
		return nil, err
	}
	return New(spec)
}

// environment reads the launcher's variables. Its errors name the variable, its value, and what is expected.
type environment func(string) (string, bool)

// get returns the value of a variable without the blanks around it, and whether it is set.
func (env environment) get(name string) (string, bool) {
	value, _ := env(name)
	value = strings.TrimSpace(value)
	return value, value != ""
}

// Generation returns how often the workers of the job have been started, this time included.
func Generation(lookup func(string) (string, bool)) (int, error) {
	value, found := environment(lookup).get(EnvGeneration)
	if !found {
		return 1, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, errors.Errorf("epl: %s=%s: expected how often the workers have been started, a number of at least 1; the launcher sets it", EnvGeneration, value)
	}
	return n, nil
}

// numWorkers returns the number of workers. Where it is not said there is one, and nothing may contradict that.
func (env environment) numWorkers() (int, error) {
	value, found := env.get(EnvNumWorkers)
	if !found {
		return 1, env.checkAlone()
	}
	workers, err := strconv.Atoi(value)
	if err != nil || workers < 1 || workers > maxDevices {
		return 0, errors.Errorf("epl: %s=%q: expected a number from 1 to %d", EnvNumWorkers, value, maxDevices)
	}
	return workers, nil
}

// checkAlone refuses variables that describe a job of several workers without saying how many there are.
func (env environment) checkAlone() error {
	for _, name := range []string{EnvWorkerIndex, EnvWorkerHosts, envRendezvous} {
		if value, found := env.get(name); found && !(name == envRendezvous && env.alone()) {
			return errors.Errorf("epl: %s=%q is set, but %s is not; set both, or neither", name, value, EnvNumWorkers)
		}
	}
	if _, found := env.get(torchWorkers); found {
		return nil // of one worker, else there is an allocation
	}
	for _, name := range []string{torchHost, torchPort} {
		if value, found := env.get(name); found {
			return errors.Errorf("epl: %s=%q is set, but %s and %s are not; torchrun sets all of them: set all, or none",
				name, value, torchRank, torchWorkers)
		}
	}
	return nil
}

func (env environment) workerIndex(workers int) (int, error) {
	value, found := env.get(EnvWorkerIndex)
	if !found {
		if workers == 1 {
			return 0, nil
		}
		return 0, errors.Errorf("epl: %s is not set, but %s is %d; set it to this worker's index, %s",
			EnvWorkerIndex, EnvNumWorkers, workers, indices(workers))
	}
	index, err := strconv.Atoi(value)
	if err != nil || index < 0 || index >= workers {
		return 0, errors.Errorf("epl: %s=%q: expected %s, because %s is %d",
			EnvWorkerIndex, value, indices(workers), EnvNumWorkers, workers)
	}
	return index, nil
}

// devices returns the number of devices of each worker; unset is what to take where the launcher does not say.
func (env environment) devices(workers, unset int) ([]int, error) {
	devices := make([]int, workers)
	value, found := env.get(EnvDevicesPerWorker)
	if !found {
		for i := range devices {
			devices[i] = max(unset, 1)
		}
		return devices, nil
	}
	counts := strings.Split(value, ",")
	if _, described := env.get(EnvNumWorkers); !described && len(counts) != 1 {
		return nil, errors.Errorf("epl: %s=%q has %d numbers, but %s is not set; set it to %d, or give 1 number",
			EnvDevicesPerWorker, value, len(counts), EnvNumWorkers, len(counts))
	}
	if len(counts) != 1 && len(counts) != workers {
		return nil, errors.Errorf("epl: %s=%q has %d numbers: expected 1 for all workers, or 1 for each of the %d in %s",
			EnvDevicesPerWorker, value, len(counts), workers, EnvNumWorkers)
	}
	for i := range devices {
		count := strings.TrimSpace(counts[i%len(counts)])
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > MaxDevicesPerWorker {
			return nil, errors.Errorf("epl: %s=%q: expected numbers from 1 to %d, got %q for worker %d",
				EnvDevicesPerWorker, value, MaxDevicesPerWorker, count, i)
		}
		devices[i] = n
	}
	return devices, nil
}

// hosts returns the host of each worker, or nil where the launcher does not say.
func (env environment) hosts(workers int) ([]string, error) {
	value, found := env.get(EnvWorkerHosts)
	if !found {
		return nil, nil
	}
	hosts := strings.Split(value, ",")
	if len(hosts) != workers {
		return nil, errors.Errorf("epl: %s=%q names %s: expected 1 for each of the %d in %s",
			EnvWorkerHosts, value, words.Count(len(hosts), "host"), workers, EnvNumWorkers)
	}
	for i := range hosts {
		hosts[i] = strings.TrimSpace(hosts[i])
		if hosts[i] == "" {
			return nil, errors.Errorf("epl: %s=%q: expected host names separated by commas, got an empty one for worker %d",
				EnvWorkerHosts, value, i)
		}
	}
	return hosts, nil
}
