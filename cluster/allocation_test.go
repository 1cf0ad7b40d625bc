// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// slurmStep is the environment of task 3 of a step of 4 tasks on two nodes.
func slurmStep(changes ...string) variables {
	env := variables{
		"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4",
		"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
		"SLURM_NODELIST": "node[1-9]", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
	}
	return changed(env, changes)
}

func openMPI(changes ...string) variables {
	return changed(variables{
		"PMIX_NAMESPACE": "77", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
		"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
	}, changes)
}

// torchrun is the environment of worker 3 of 4 on two machines.
func torchrun(changes ...string) variables {
	return changed(variables{
		"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
		"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "False",
	}, changes)
}

// changed sets variables, NAME=value; without a value they are removed.
func changed(env variables, changes []string) variables {
	for _, change := range changes {
		name, value, _ := strings.Cut(change, "=")
		delete(env, name)
		if value != "" {
			env[name] = value
		}
	}
	return env
}

func TestAnAllocationIsFoundInTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		name string
		env  variables
		want Allocation
	}{
		{"a task of a Slurm step", slurmStep(),
			Allocation{"Slurm", "12.0", 4, 3, 2, 1, []string{"node1", "node1", "node2", "node2"}}},
		{"dealt in turn", slurmStep("SLURM_DISTRIBUTION=cyclic:block"),
			Allocation{"Slurm", "12.0", 4, 3, 2, 1, []string{"node1", "node2", "node1", "node2"}}},
		{"an old Slurm that has no variables for the step",
			slurmStep("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS=3",
				"SLURM_NODELIST=b,a", "SLURM_TASKS_PER_NODE=2,1", "SLURM_PROCID=2", "SLURM_LOCALID=0"),
			Allocation{"Slurm", "12.0", 3, 2, 1, 0, []string{"b", "b", "a"}}},
		{"a Slurm step on one node", slurmStep("SLURM_STEP_NODELIST=login", "SLURM_STEP_TASKS_PER_NODE=4", "SLURM_LOCALID=3", "SLURM_NODEID=0"),
			Allocation{"Slurm", "12.0", 4, 3, 4, 3, nil}},
		{"Open MPI", openMPI(), Allocation{"Open MPI", "77", 2, 1, 2, 1, nil}},
		{"MPICH", variables{"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
			Allocation{"MPI", "", 4, 2, 2, 0, nil}},
		{"PMI without local numbers", variables{"PMI_RANK": "2", "PMI_SIZE": "4"}, Allocation{"MPI", "", 4, 2, 4, 2, nil}},
		{"Slurm before the PMI that it provides", changed(slurmStep(), []string{"PMI_RANK=3", "PMI_SIZE=4"}),
			Allocation{"Slurm", "12.0", 4, 3, 2, 1, []string{"node1", "node1", "node2", "node2"}}},
		{"a pod of an Indexed Job", variables{"JOB_COMPLETION_INDEX": "1", EnvNumWorkers: "2", EnvWorkerHosts: "a,b"},
			Allocation{"Kubernetes", "", 2, 1, 1, 0, []string{"a", "b"}}},
		{"torchrun", torchrun(), Allocation{"torchrun", "none-0-29500", 4, 3, 2, 1, nil}},
		{"torchrun as a task of Slurm", changed(slurmStep(), []string{"RANK=5", "WORLD_SIZE=16", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=7"}),
			Allocation{"torchrun", "7", 16, 5, 4, 1, nil}},
		{"torchrun in a shell of Slurm", changed(slurmStep("SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_STEP_NODELIST=a", "SLURM_STEP_TASKS_PER_NODE=1",
			"SLURM_LOCALID=0"), []string{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}), Allocation{"torchrun", "", 2, 1, 2, 1, nil}},
		{"torchrun's variables by hand", variables{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "1"},
			Allocation{"torchrun", "1", 2, 1, 1, 0, nil}},
		{"torchrun's variables by hand, on one machine", variables{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
			Allocation{"torchrun", "1", 2, 1, 2, 1, nil}},
		{"Slurm with torchrun's variables that say the same", changed(slurmStep(), []string{"RANK=3", "WORLD_SIZE=4"}),
			Allocation{"Slurm", "12.0", 4, 3, 2, 1, []string{"node1", "node1", "node2", "node2"}}},
		{"torchrun knows the index", torchrun(EnvNumWorkers + "=4"), Allocation{"torchrun", "none-0-29500", 4, 3, 2, 1, nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, found, err := FindAllocation(test.env.lookup)
			if err != nil || !found {
				t.Fatalf("found %v, %v", found, err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestWhatIsNoWorkerOfAnAllocationIsNotTakenForOne(t *testing.T) {
	for name, env := range map[string]variables{
		"nothing":                                 {},
		"a batch script":                          slurmStep("SLURM_STEP_ID", "SLURM_PROCID=0"),
		"the shell of salloc":                     slurmStep("SLURM_STEP_ID", "SLURM_PROCID"),
		"the interactive step of salloc":          slurmStep("SLURM_STEP_ID=4294967290", "SLURM_PROCID=0"),
		"srun --pty bash":                         slurmStep("SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_STEP_NODELIST=a", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_LOCALID=0"),
		"mpirun -n 1":                             {"PMI_RANK": "0", "PMI_SIZE": "1"},
		"a step whose workers epl-launch started": slurmStep(EnvNumWorkers+"=2", EnvWorkerIndex+"=1"),
		"mpirun in a worker of epl-launch":        openMPI(EnvNumWorkers+"=2", EnvWorkerIndex+"=1"),
		"an Indexed Job that is not ours":         {"JOB_COMPLETION_INDEX": "1"},
		"a worker of epl-launch":                  {EnvNumWorkers: "2", EnvWorkerIndex: "0", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
		"torchrun --nproc-per-node 1":             torchrun("RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"),
		"an address of PyTorch in a batch script": {"MASTER_ADDR": "a", "MASTER_PORT": "1"},
		"a worker in a pod, with its index":       {"JOB_COMPLETION_INDEX": "1", EnvNumWorkers: "2", EnvWorkerIndex: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			if a, found, err := FindAllocation(env.lookup); found || err != nil {
				t.Errorf("found %+v, %v", a, err)
			}
		})
	}
}

func TestContradictoryAllocationsAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		env  variables
		want string
	}{
		{slurmStep("SLURM_PROCID=4"), `epl: SLURM_PROCID="4": expected 0 to 3, because of SLURM_STEP_NUM_TASKS="4"`},
		{slurmStep("SLURM_STEP_NUM_TASKS=x"), `epl: SLURM_STEP_NUM_TASKS="x": expected a number from 1 to`},
		{slurmStep("SLURM_STEP_NODELIST=a[1-"), `epl: SLURM_STEP_NODELIST="a[1-": expected names of nodes`},
		{slurmStep("SLURM_STEP_TASKS_PER_NODE=2(x3)"), `epl: SLURM_STEP_TASKS_PER_NODE="2(x3)": expected numbers of tasks`},
		{slurmStep("SLURM_STEP_TASKS_PER_NODE=2,1"), `epl: SLURM_STEP_TASKS_PER_NODE="2,1": expected 4 tasks on 2 nodes`},
		{slurmStep("SLURM_NODEID=0"), `epl: this is task 3 of the Slurm step, on node node1, where it was not expected`},
		{slurmStep("SLURM_DISTRIBUTION=plane=2"), `epl: SLURM_DISTRIBUTION="plane=2": EPL knows block and cyclic`},
		{openMPI("OMPI_COMM_WORLD_SIZE"), `epl: OMPI_COMM_WORLD_SIZE="": expected a number`},
		{openMPI("OMPI_COMM_WORLD_LOCAL_RANK=2"), `epl: OMPI_COMM_WORLD_LOCAL_RANK="2": expected 0 or 1`},
		{variables{"PMI_RANK": "2"}, `epl: PMI_SIZE="": expected a number`},
		{variables{"JOB_COMPLETION_INDEX": "2", EnvNumWorkers: "2"}, `epl: JOB_COMPLETION_INDEX="2": expected 0 or 1, because of EPL_NUM_WORKERS="2"`},
		{torchrun("RANK=4"), `epl: RANK="4": expected 0 to 3, because of WORLD_SIZE="4"`},
		{torchrun("LOCAL_RANK"), `epl: LOCAL_RANK="": expected 0 or 1, because of LOCAL_WORLD_SIZE="2"`},
		{torchrun("WORLD_SIZE"), `epl: RANK="3" is set, but WORLD_SIZE is not; torchrun sets both: set both, or neither`},
		{variables{"WORLD_SIZE": "4"}, `epl: WORLD_SIZE="4" is set, but RANK is not; torchrun sets both: set both, or neither`},
		{changed(slurmStep(), []string{"RANK=3", "WORLD_SIZE=5"}), `epl: WORLD_SIZE="5" contradicts Slurm, which says 4; unset RANK and WORLD_SIZE, or make them equal`},
		{openMPI("RANK=0", "WORLD_SIZE=2"), `epl: RANK="0" contradicts Open MPI, which says 1`},
		{torchrun(EnvNumWorkers + "=2"), `epl: WORLD_SIZE="4" contradicts EPL_NUM_WORKERS, which says 2`},
		{torchrun(EnvNumWorkers+"=4", EnvWorkerIndex+"=2"), `epl: RANK="3" contradicts EPL_WORKER_INDEX, which says 2`},
	} {
		if _, found, err := FindAllocation(test.env.lookup); err == nil || found || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("found %v, got  %v\nwant %s", found, err, test.want)
		}
	}
}

func TestSlurmsNodeListsAreExpanded(t *testing.T) {
	for list, want := range map[string]string{
		"a":                      "a",
		"a,b":                    "a b",
		"a[1-3,7],b":             "a1 a2 a3 a7 b",
		"n[08-11]":               "n08 n09 n10 n11",
		"rack1-[1-2].local,x[5]": "rack1-1.local rack1-2.local x5",
	} {
		got, err := environment(variables{"LIST": list}.lookup).nodeList("LIST")
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, %v, want %q", list, got, err, want)
		}
	}
	for _, list := range []string{"", ",", "a,", "a[", "a[]", "a[1-]", "a[2-1]", "a[1][2]", "a[1-9999999999]", "a[-1]"} {
		if got, err := environment(variables{"LIST": list}.lookup).nodeList("LIST"); err == nil {
			t.Errorf("%q became %q", list, got)
		}
	}
}

func TestWorkersOfOneMachineMeetInAPrivateDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	env := openMPI()
	a, _, err := FindAllocation(env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	vars, err := a.Environ(env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(vars, "\n")
	if !strings.HasPrefix(got, "EPL_NUM_WORKERS=2\nEPL_WORKER_INDEX=1\nEPL_RDZV=file:///") || !strings.HasSuffix(got, "/Open-MPI-77") {
		t.Errorf("got:\n%s", got)
	}
	url := strings.TrimPrefix(vars[2], "EPL_RDZV=file://")
	if info, err := os.Stat(filepath.Dir(url)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if err := os.Chmod(filepath.Dir(url), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Environ(env.lookup); err == nil || !strings.Contains(err.Error(), "nobody else may open") {
		t.Errorf("a directory that others may open: %v", err)
	}
}

func TestWorkersOfSeveralMachinesMeetAtTheFirst(t *testing.T) {
	find := func(env variables) Allocation {
		t.Helper()
		a, found, err := FindAllocation(env.lookup)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		return a
	}
	env := slurmStep("EPL_TOKEN=secret")
	vars, err := find(env).Environ(env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(vars, "\n")
	if want := "EPL_NUM_WORKERS=4\nEPL_WORKER_INDEX=3\nEPL_WORKER_HOSTS=node1,node1,node2,node2\nEPL_RDZV=first://node1:2"; !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s…", got, want)
	}
	if again, _ := find(env).Environ(env.lookup); !reflect.DeepEqual(again, vars) {
		t.Errorf("another worker meets elsewhere: %q", again)
	}

	env = openMPI("OMPI_COMM_WORLD_SIZE=4", "EPL_TOKEN=secret", "EPL_RDZV=first://node1:29870")
	if vars, err := find(env).Environ(env.lookup); err != nil || vars[2] != "EPL_RDZV=first://node1:29870" {
		t.Errorf("the user's own place: %q, %v", vars, err)
	}

	for _, test := range []struct {
		env  variables
		want string
	}{
		{torchrun("EPL_TOKEN=secret"), "first://node1:29500"},
		{torchrun("EPL_TOKEN=secret", "MASTER_ADDR=::1"), "first://[::1]:29500"},
		{torchrun("EPL_TOKEN=secret", "EPL_RDZV=first://b:1"), "first://b:1"},
		{changed(slurmStep(), []string{"EPL_TOKEN=secret", "MASTER_ADDR=node1", "MASTER_PORT=7"}), "first://node1:7"},
		{openMPI("OMPI_COMM_WORLD_SIZE=4", "EPL_TOKEN=secret", "MASTER_ADDR=a", "MASTER_PORT=7"), "first://a:7"},
	} {
		if vars, err := find(test.env).Environ(test.env.lookup); err != nil || vars[len(vars)-1] != "EPL_RDZV="+test.want {
			t.Errorf("%v: %q, %v, want %s", test.env, vars, err, test.want)
		}
	}
	env = torchrun("EPL_TOKEN=secret", "TORCHELASTIC_USE_AGENT_STORE=True")
	if vars, err := find(env).Environ(env.lookup); err != nil || !strings.HasPrefix(vars[2], "EPL_RDZV=first://node1:2") || strings.HasSuffix(vars[2], ":29500") {
		t.Errorf("torchrun listens at its port itself, and the workers meet at %q, %v", vars, err)
	}

	for _, test := range []struct {
		env  variables
		want string
	}{
		{torchrun(), "epl: torchrun started 4 workers on several machines, and EPL_TOKEN is not set"},
		{torchrun("MASTER_PORT", "EPL_TOKEN=secret"), `epl: MASTER_ADDR="node1" is set, but MASTER_PORT is not; torchrun sets both`},
		{torchrun("MASTER_PORT=x", "EPL_TOKEN=secret"), `epl: MASTER_PORT="x": expected a number from 1 to 65535`},
		{torchrun("MASTER_ADDR", "MASTER_PORT", "EPL_TOKEN=secret"), "epl: torchrun started 4 workers on several machines, and does not say which"},
		{slurmStep(), "epl: Slurm started 4 workers on several machines, and EPL_TOKEN is not set; before starting them run export EPL_TOKEN=$(openssl rand -hex 32)"},
		{openMPI("OMPI_COMM_WORLD_SIZE=4"), "epl: Open MPI started 4 workers on several machines, and does not say which; name the first machine and a free port in EPL_RDZV=first://HOST:PORT"},
		{variables{"JOB_COMPLETION_INDEX": "1", EnvNumWorkers: "2", "EPL_RDZV": "first://a:1"}, "epl: Kubernetes started 2 workers on several machines, and EPL_TOKEN is not set"},
	} {
		if _, err := find(test.env).Environ(test.env.lookup); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}
