// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/rendezvous"
)

// envMark marks every process of a crew, and is inherited by those that a worker starts: it is how they are found when
// they must end.
const envMark = "EPL_LAUNCH"

// envPlanFile names the plan that workers run by (epl.EnvPlanFile).
const envPlanFile = "EPL_PLAN_FILE"

// environ is the environment of one worker: the machine's own, with the job's variables on top. slots are the GPUs that
// it may see, nil where that is not to be said; procs is its GOMAXPROCS, 0 where that is not to be said.
func (s spec) environ(base []string, worker int, url, mark string, slots []string, procs int) []string {
	vars := map[string]string{envMark: mark}
	set := func(name, value string) {
		if value != "" {
			vars[name] = value
		}
	}
	for _, variable := range s.Environ {
		name, value, _ := strings.Cut(variable, "=")
		vars[name] = value
	}
	set(cluster.EnvNumWorkers, strconv.Itoa(s.Workers))
	set(cluster.EnvWorkerIndex, strconv.Itoa(worker))
	if s.Devices > 0 {
		set(cluster.EnvDevicesPerWorker, strconv.Itoa(s.Devices))
	}
	set(cluster.EnvWorkerHosts, strings.Join(s.Hosts, ","))
	set(rendezvous.EnvURL, url)
	set(rendezvous.EnvToken, s.Token)
	if s.Generation > 0 {
		set(cluster.EnvGeneration, strconv.Itoa(s.Generation))
	}
	if s.Memory.ID != "" {
		s.Memory.Began = s.Began
		set(hostmem.Env, s.Memory.String())
	}
	if s.End > 0 {
		set(cluster.EnvGenerationEnd, strconv.FormatInt(s.End, 10))
	}
	set(rendezvous.EnvTLSCert, s.TLS.Cert)
	set(rendezvous.EnvTLSKey, s.TLS.Key)
	set(rendezvous.EnvTLSCA, s.TLS.CA)

	// What programs of other libraries expect.
	set("RANK", strconv.Itoa(worker))
	set("WORLD_SIZE", strconv.Itoa(s.Workers))
	set("LOCAL_RANK", strconv.Itoa(s.LocalIndex+worker-s.First))
	if _, address, ok := strings.Cut(url, "://"); ok && !strings.HasPrefix(url, "file:") {
		host, port, _ := net.SplitHostPort(address)
		set("MASTER_ADDR", host)
		set("MASTER_PORT", port)
	}

	if procs > 0 {
		set("GOMAXPROCS", strconv.Itoa(procs))
	}
	if slots != nil {
		vars[envVisible] = strings.Join(slots, ",")
	}

	all := slices.DeleteFunc(slices.Clone(base), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		_, replaced := vars[name]
		return replaced || name == cluster.EnvWorkerHosts || name == cluster.EnvGeneration || name == cluster.EnvGenerationEnd || name == hostmem.Env || name == dashboard.Env || name == cluster.EnvDevicesPerWorker && s.Devices > 0
	})
	for _, name := range sortedKeys(vars) {
		all = append(all, name+"="+vars[name])
	}
	return all
}

func sortedKeys(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// envVisible is the variable by which CUDA is told which GPUs a process may see.
const envVisible = "CUDA_VISIBLE_DEVICES"

// gpus returns the GPUs of this machine that workers may use, in CUDA's numbers or names; none where there are none.
func gpus(environ []string, devices string) (all []string) {
	if value, set := lookup(environ, envVisible); set {
		for id := range strings.SplitSeq(value, ",") {
			if id = strings.TrimSpace(id); id == "" || strings.HasPrefix(id, "-") {
				break // so does CUDA: what follows an invalid one is not visible
			}
			all = append(all, id)
		}
		return all
	}
	files, _ := filepath.Glob(filepath.Join(devices, "nvidia[0-9]*"))
	for i := range files {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// dealGPUs returns the GPUs of each worker of a machine: nil where they are not to be dealt, and a note for the user if
// that is because they are too few.
func dealGPUs(all []string, workers, each int) (slots [][]string, note string) {
	slots = make([][]string, workers)
	if len(all) == 0 {
		return slots, ""
	}
	if each == 0 {
		each = len(all) / workers
	}
	if each == 0 || each*workers > len(all) {
		return slots, fmt.Sprintf("the %d GPUs of this machine are too few for %d workers with %d devices each: %s is left as it is",
			len(all), workers, max(each, 1), envVisible)
	}
	for i := range slots {
		slots[i] = all[i*each : (i+1)*each]
	}
	return slots, ""
}

// forwarded returns those variables of the user's that workers on other machines get too.
func forwarded(environ []string) (vars []string) {
	for _, variable := range environ {
		for _, prefix := range []string{"EPL_", "GOMLX_", "XLA_"} {
			if strings.HasPrefix(variable, prefix) {
				vars = append(vars, variable)
			}
		}
	}
	return vars
}

// hostName is this machine's name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
