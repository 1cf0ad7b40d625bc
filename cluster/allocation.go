// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// The variables that an allocation is translated to, besides those of this package. They are read by rendezvous,
// which this package does not import.
const (
	envRendezvous = "EPL_RDZV"
	envToken      = "EPL_TOKEN"
)

// Allocation is what a scheduler, or the launcher of another library, says about the job that this process is one
// worker of: a program that was started by srun, by mpirun or by Kubernetes, not by epl-launch.
type Allocation struct {
	// By names who started the workers, for people: "Slurm", "Open MPI", "MPI", "Kubernetes", "torchrun".
	By string
	// Job is different for two jobs that run on one machine at the same time, and the same for all workers of one. It
	// is empty where the environment has nothing of the kind.
	Job string
	// Workers is how many workers the job has, Index this worker's number among them.
	Workers, Index int
	// LocalWorkers is how many of them are on this machine, LocalIndex this worker's number among those.
	LocalWorkers, LocalIndex int
	// Hosts names the machine of each worker; nil where that is not known, and for workers of a single machine.
	Hosts []string
}

// FindAllocation returns the allocation that the environment describes, read through lookup (os.LookupEnv), if there
// is one. Where EPL's own variables describe the job they decide, and there is none to be found; but in a Kubernetes
// Indexed Job they are the same for all workers, so that the index is Kubernetes' own. Variables of torchrun (RANK,
// WORLD_SIZE) must not contradict what decides.
//
// A single task is not a job of several workers: `srun --pty bash` and `mpirun -n 1` are nothing to be found.
func FindAllocation(lookup func(string) (string, bool)) (a Allocation, found bool, err error) {
	env := environment(lookup)
	if _, set := env.get(EnvNumWorkers); set {
		return env.described()
	}
	finders := schedulers
	if env.byTorchrun() {
		finders = []func(environment) (Allocation, bool, error){environment.torchrun}
	}
	for _, find := range finders {
		if a, found, err = find(env); err != nil {
			return Allocation{}, false, err
		}
		if found && a.Workers > 1 {
			return env.checked(a)
		}
	}
	return Allocation{}, false, nil
}

// checked returns an allocation that was found, unless torchrun's variables contradict it.
func (env environment) checked(a Allocation) (Allocation, bool, error) {
	if err := env.agree(fact{a.By, a.Workers}, fact{a.By, a.Index}); err != nil {
		return Allocation{}, false, err
	}
	return a, true, nil
}

// schedulers are who may have started the workers, in the order in which they are asked: those before know more.
var schedulers = []func(environment) (Allocation, bool, error){
	environment.slurm, environment.openMPI, environment.pmi, environment.torchrun,
}

// described is FindAllocation where EPL_NUM_WORKERS is set.
func (env environment) described() (a Allocation, found bool, err error) {
	if a, found, err = env.kubernetes(); err != nil {
		return Allocation{}, false, err
	}
	if found && a.Workers > 1 {
		return env.checked(a)
	}
	workers, err := env.numWorkers()
	if err != nil {
		return Allocation{}, false, err
	}
	index := -1
	if _, set := env.get(EnvWorkerIndex); set {
		if index, err = env.workerIndex(workers); err != nil {
			return Allocation{}, false, err
		}
	}
	if err := env.agree(fact{EnvNumWorkers, workers}, fact{EnvWorkerIndex, index}); err != nil || index >= 0 || workers == 1 {
		return Allocation{}, false, err
	}
	return env.torchrun() // it may know the index
}

// alone tells whether a scheduler started this process as its only one.
func (env environment) alone() bool {
	return slices.ContainsFunc(schedulers, func(find func(environment) (Allocation, bool, error)) bool {
		a, found, err := find(env)
		return found && err == nil && a.Workers == 1
	})
}

// kubernetes finds a pod of an Indexed Job whose manifest gives everything but the index.
func (env environment) kubernetes() (a Allocation, found bool, err error) {
	if _, set := env.get(EnvWorkerIndex); set {
		return a, false, nil
	}
	if _, set := env.get("JOB_COMPLETION_INDEX"); !set {
		return a, false, nil
	}
	a = Allocation{By: "Kubernetes", LocalWorkers: 1}
	if a.Workers, err = env.numWorkers(); err != nil {
		return a, false, err
	}
	if a.Index, err = env.task("JOB_COMPLETION_INDEX", EnvNumWorkers, a.Workers); err != nil {
		return a, false, err
	}
	if a.Hosts, err = env.hosts(a.Workers); err != nil {
		return a, false, err
	}
	return a, true, nil
}

// slurm finds a task of a step: what srun starts. A batch script and the shell of salloc see most of the variables
// too, but are no workers.
func (env environment) slurm() (a Allocation, found bool, err error) {
	// Steps from this number on are Slurm's own: the batch script, the interactive shell.
	const ownSteps = 0xfffffff0
	step, set := env.get("SLURM_STEP_ID")
	if _, hasTask := env.get("SLURM_PROCID"); !set || !hasTask {
		return a, false, nil
	}
	if id, err := strconv.ParseUint(step, 10, 64); err != nil || id >= ownSteps {
		return a, false, nil
	}
	job, _ := env.get("SLURM_JOB_ID")
	a = Allocation{By: "Slurm", Job: job + "." + step}

	tasks := env.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	if a.Workers, err = env.count(tasks); err != nil {
		return a, false, err
	}
	if a.Index, err = env.task("SLURM_PROCID", tasks, a.Workers); err != nil {
		return a, false, err
	}
	names, perNode := env.first("SLURM_STEP_NODELIST", "SLURM_NODELIST"), env.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	nodes, err := env.nodeList(names)
	if err != nil {
		return a, false, err
	}
	node := 0
	if len(nodes) > 1 {
		if node, err = env.task("SLURM_NODEID", names, len(nodes)); err != nil {
			return a, false, err
		}
	}
	counts, err := env.tasksPerNode(perNode, len(nodes), a.Workers)
	if err != nil {
		return a, false, err
	}
	a.LocalWorkers = counts[node]
	if a.LocalIndex, err = env.task("SLURM_LOCALID", perNode, a.LocalWorkers); err != nil {
		return a, false, err
	}
	if len(nodes) == 1 {
		return a, true, nil
	}
	if a.Hosts, err = env.deal(nodes, counts); err != nil {
		return a, false, err
	}
	if a.Hosts[a.Index] != nodes[node] {
		return a, false, errors.Errorf("epl: this is task %d of the Slurm step, on node %s, where it was not expected: "+
			"EPL knows the distributions block and cyclic; use srun --distribution=block", a.Index, nodes[node])
	}
	return a, true, nil
}

// openMPI finds a process that Open MPI's mpirun started.
func (env environment) openMPI() (a Allocation, found bool, err error) {
	if _, set := env.get("OMPI_COMM_WORLD_RANK"); !set {
		return a, false, nil
	}
	a = Allocation{By: "Open MPI"}
	a.Job, _ = env.get(env.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))
	if a.Workers, err = env.count("OMPI_COMM_WORLD_SIZE"); err != nil {
		return a, false, err
	}
	if a.Index, err = env.task("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", a.Workers); err != nil {
		return a, false, err
	}
	if a.LocalWorkers, err = env.count("OMPI_COMM_WORLD_LOCAL_SIZE"); err != nil {
		return a, false, err
	}
	a.LocalIndex, err = env.task("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", a.LocalWorkers)
	return a, err == nil, err
}

// pmi finds a process that MPICH's mpirun started, or a relative of it. Those that do not say how many processes share
// the machine are taken to be on one.
func (env environment) pmi() (a Allocation, found bool, err error) {
	if _, set := env.get("PMI_RANK"); !set {
		return a, false, nil
	}
	a = Allocation{By: "MPI"}
	if a.Workers, err = env.count("PMI_SIZE"); err != nil {
		return a, false, err
	}
	if a.Index, err = env.task("PMI_RANK", "PMI_SIZE", a.Workers); err != nil {
		return a, false, err
	}
	a.LocalWorkers, a.LocalIndex = a.Workers, a.Index
	if _, set := env.get("MPI_LOCALNRANKS"); !set {
		return a, true, nil
	}
	if a.LocalWorkers, err = env.count("MPI_LOCALNRANKS"); err != nil {
		return a, false, err
	}
	a.LocalIndex, err = env.task("MPI_LOCALRANKID", "MPI_LOCALNRANKS", a.LocalWorkers)
	return a, err == nil, err
}

// first returns the first of the variables that is set, else the last.
func (env environment) first(names ...string) string {
	for _, name := range names {
		if _, set := env.get(name); set {
			return name
		}
	}
	return names[len(names)-1]
}

// count returns a variable that says how many there are of something.
func (env environment) count(name string) (int, error) {
	value, _ := env.get(name)
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxDevices {
		return 0, errors.Errorf("epl: %s=%q: expected a number from 1 to %d", name, value, maxDevices)
	}
	return n, nil
}

// task returns a variable that numbers something of which there are n, as the variable total says.
func (env environment) task(name, total string, n int) (int, error) {
	value, _ := env.get(name)
	index, err := strconv.Atoi(value)
	if err != nil || index < 0 || index >= n {
		of, _ := env.get(total)
		return 0, errors.Errorf("epl: %s=%q: expected %s, because of %s=%q", name, value, indices(n), total, of)
	}
	return index, nil
}

// nodeList expands Slurm's short form of node names: "a[1-3,07],b" are a1, a2, a3, a07 and b.
func (env environment) nodeList(name string) (nodes []string, err error) {
	value, _ := env.get(name)
	bad := errors.Errorf("epl: %s=%q: expected names of nodes such as a[1-3,7],b", name, value)
	for rest := value; rest != ""; {
		end := strings.IndexFunc(rest, func(r rune) bool { return r == ',' || r == '[' })
		if end < 0 {
			nodes, rest = append(nodes, rest), ""
			continue
		}
		if rest[end] == ',' {
			nodes, rest = append(nodes, rest[:end]), rest[end+1:]
			continue
		}
		prefix := rest[:end]
		inside, after, closed := strings.Cut(rest[end+1:], "]")
		suffix := after
		if comma := strings.IndexByte(after, ','); comma >= 0 {
			suffix, rest = after[:comma], after[comma+1:]
		} else {
			rest = ""
		}
		if !closed || strings.ContainsAny(suffix, "[]") {
			return nil, bad
		}
		numbers, ok := ranges(inside)
		if !ok {
			return nil, bad
		}
		for _, number := range numbers {
			nodes = append(nodes, prefix+number+suffix)
		}
	}
	if len(nodes) == 0 || strings.HasSuffix(value, ",") {
		return nil, bad
	}
	for _, node := range nodes {
		if node == "" {
			return nil, bad
		}
	}
	return nodes, nil
}

// ranges expands "1-3,07" to 1, 2, 3 and 07. A number is as wide as the first of its range.
func ranges(text string) (numbers []string, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 0 || to < from || to-from >= maxDevices {
			return nil, false
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return numbers, true
}

// tasksPerNode expands Slurm's "2(x3),1": 2 tasks on each of 3 nodes, and 1 on a fourth.
func (env environment) tasksPerNode(name string, nodes, tasks int) (counts []int, err error) {
	value, set := env.get(name)
	if !set && nodes == 1 {
		return []int{tasks}, nil
	}
	sum := 0
	for part := range strings.SplitSeq(value, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		if !repeated {
			times = "1)"
		}
		n, err := strconv.Atoi(count)
		k, err2 := strconv.Atoi(strings.TrimSuffix(times, ")"))
		if err != nil || err2 != nil || !strings.HasSuffix(times, ")") || n < 1 || k < 1 || k > nodes {
			return nil, errors.Errorf("epl: %s=%q: expected numbers of tasks such as 2(x3),1", name, value)
		}
		for range k {
			counts = append(counts, n)
			sum += n
		}
	}
	if len(counts) != nodes || sum != tasks {
		return nil, errors.Errorf("epl: %s=%q: expected %s on %s", name, value, words.Count(tasks, "task"), words.Count(nodes, "node"))
	}
	return counts, nil
}

// deal returns the node of each task, for the distribution of the step.
func (env environment) deal(nodes []string, counts []int) (hosts []string, err error) {
	distribution, _ := env.get("SLURM_DISTRIBUTION")
	across, _, _ := strings.Cut(distribution, ":")
	across, _, _ = strings.Cut(across, ",")
	switch across {
	case "", "block":
		for i, node := range nodes {
			for range counts[i] {
				hosts = append(hosts, node)
			}
		}
	case "cyclic":
		for round, dealt := 0, true; dealt; round++ {
			dealt = false
			for i, node := range nodes {
				if round < counts[i] {
					hosts, dealt = append(hosts, node), true
				}
			}
		}
	default:
		return nil, errors.Errorf("epl: SLURM_DISTRIBUTION=%q: EPL knows block and cyclic; use srun --distribution=block", distribution)
	}
	return hosts, nil
}

// Environ returns the allocation in EPL's own variables, as NAME=value, for [FromEnvironment] and for rendezvous; what
// lookup already has of them stays.
//
// Workers of one machine meet through a file in a directory that is the user's alone, which Environ makes. Workers of
// several meet at the first machine, and then need a token: whoever knows it may join the job.
func (a Allocation) Environ(lookup func(string) (string, bool)) ([]string, error) {
	env := environment(lookup)
	vars := []string{
		fmt.Sprintf("%s=%d", EnvNumWorkers, a.Workers),
		fmt.Sprintf("%s=%d", EnvWorkerIndex, a.Index),
	}
	if a.Hosts != nil {
		vars = append(vars, EnvWorkerHosts+"="+strings.Join(a.Hosts, ","))
	}
	url, given := env.get(envRendezvous)
	master, chosen, err := env.master(a)
	if err != nil {
		return nil, err
	}
	switch {
	case given:
	case a.LocalWorkers == a.Workers:
		path, err := a.meetingFile()
		if err != nil {
			return nil, err
		}
		url = "file://" + path
	case chosen:
		url = "first://" + master
	case a.Hosts == nil:
		return nil, errors.Errorf("epl: %s started %d workers on several machines, and does not say which; name the first "+
			"machine and a free port in %s=first://HOST:PORT, and give all workers the same %s",
			a.By, a.Workers, envRendezvous, envToken)
	default:
		url = "first://" + net.JoinHostPort(a.Hosts[0], strconv.Itoa(a.port()))
	}
	if _, set := env.get(envToken); !set && !strings.HasPrefix(url, "file://") {
		return nil, errors.Errorf("epl: %s started %d workers on several machines, and %s is not set; before starting them run "+
			"export %s=$(openssl rand -hex 32)", a.By, a.Workers, envToken, envToken)
	}
	return append(vars, envRendezvous+"="+url), nil
}

// port is where the first worker of several machines is met. It follows from the job's name, so that two jobs rarely
// want the same, and is below those that systems hand out by themselves.
func (a Allocation) port() int {
	h := fnv.New32a()
	h.Write([]byte(a.By + " " + a.Job))
	return 20000 + int(h.Sum32()%10000)
}

// meetingFile returns the path of the file through which workers of one machine meet, in a directory that nobody else
// may write to. Without a name for the job it is named by the process that started all workers.
func (a Allocation) meetingFile() (string, error) {
	job := strings.Map(func(r rune) rune {
		if strings.ContainsRune("-._", r) || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, a.Job)
	if job == "" {
		job = fmt.Sprintf("process-%d", starter())
	}
	user := os.Getuid()
	directory := filepath.Join(os.TempDir(), fmt.Sprintf("epl-%d", user))
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", errors.Errorf("epl: the workers cannot meet: %v; set TMPDIR to a directory that can be written to", err)
	}
	info, err := os.Lstat(directory)
	if err != nil {
		return "", errors.Errorf("epl: the workers cannot meet: %v", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ok && int(stat.Uid) != user {
		return "", errors.Errorf("epl: the workers cannot meet in %s: it must be a directory of this user that nobody else may open; "+
			"remove it, or set TMPDIR", directory)
	}
	return filepath.Join(directory, strings.ReplaceAll(a.By, " ", "-")+"-"+job), nil
}

// starter returns the process that started all workers of this machine: the nearest ancestor that is a launcher's
// helper, so that a shell between it and the worker does no harm, else the parent.
func starter() int {
	for pid := os.Getppid(); pid > 1; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		if strings.Contains(name, "hydra") || strings.Contains(name, "mpirun") || strings.Contains(name, "mpiexec") {
			return pid
		}
		fields := strings.Fields(rest) // state, parent, …
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			break
		}
	}
	return os.Getppid()
}
