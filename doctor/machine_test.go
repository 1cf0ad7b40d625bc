// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/launch"
)

// fake is a machine that lacks nothing: tests take something away. Commands are what they print; those that begin with "!" fail.
type fake struct {
	files, env, commands map[string]string
	shm                  int64
	synced               bool
	level                isa.Level
	wrongISA, settings   error
	listen               error
}

func healthy() *fake {
	return &fake{
		files: map[string]string{
			"sys/devices/system/cpu/online":  "0-7",
			"sys/devices/system/node/online": "0",
			"proc/self/status":               "Name:\tepl\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-7\n",
			"proc/self/cgroup":               "0::/job",
			"proc/meminfo":                   "MemTotal:       16777216 kB\nMemAvailable:   8388608 kB\n",
			"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\n" +
				"Max processes             60000                60000                processes\n" +
				"Max open files            1024                 65536                files\n" +
				"Max locked memory         8388608              8388608              bytes\n" +
				"Max address space         unlimited            unlimited            bytes\n",
			"proc/sys/kernel/yama/ptrace_scope": "0",
		},
		env: map[string]string{},
		commands: map[string]string{
			"go env GOVERSION GOTOOLCHAIN": minGo + "\nauto", "go env GOEXPERIMENT": "simd", "ssh": "",
		},
		shm: 8 << 30, synced: true, level: isa.AVX512,
	}
}

func (f *fake) system(t *testing.T) *System {
	t.Helper()
	root := t.TempDir()
	for name, text := range f.files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	find := func(name string) (string, error) {
		for command := range f.commands {
			if first, _, _ := strings.Cut(command, " "); first == name {
				return "/usr/bin/" + name, nil
			}
		}
		return "", exec.ErrNotFound
	}
	return &System{
		Root: root, Home: filepath.Join(root, "home"), OS: "linux", Arch: "amd64", Port: launch.DefaultPort,
		Env: func(name string) (string, bool) { value, set := f.env[name]; return value, set },
		Run: func(name string, args ...string) (string, error) {
			if _, err := find(name); err != nil {
				return "", err
			}
			out, known := f.commands[strings.Join(append([]string{name}, args...), " ")]
			if !known {
				t.Errorf("nobody expected %s %q", name, args)
			}
			if what, failed := strings.CutPrefix(out, "!"); failed {
				return what, errors.New("exit status 1")
			}
			return out, nil
		},
		Path: find,
		Listen: func(string) (net.Listener, error) {
			if f.listen != nil {
				return nil, f.listen
			}
			return net.Listen("tcp", "127.0.0.1:0")
		},
		Size: func(string) (int64, error) {
			if f.shm == 0 {
				return 0, os.ErrNotExist
			}
			return f.shm, nil
		},
		Synced:   func() (bool, bool) { return f.synced, true },
		ISA:      func() (isa.Level, error) { return f.level, f.wrongISA },
		Settings: func() error { return f.settings },
	}
}

func TestAMachineThatLacksNothingIsOK(t *testing.T) {
	for _, f := range Machine(healthy().system(t)) {
		if f.Level != OK || f.Fix != "" || !strings.HasSuffix(f.Says, ".") {
			t.Errorf("%+v", f)
		}
	}
}

const kubectl = "kubectl auth can-i create jobs --request-timeout=5s"

// gpuFiles is a machine with two GPUs.
func gpuFiles(f *fake, driver, plugin string) {
	for _, name := range []string{"dev/nvidia0", "dev/nvidia1", "dev/nvidia-uvm"} {
		f.files[name] = ""
	}
	if driver != "" {
		f.files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + driver + "  Wed Oct 1\nGCC version:  gcc version 12.3.0"
	}
	if plugin != "" {
		f.files["usr/lib/python3/dist-packages/jax_plugins/xla_"+plugin+"/xla_cuda_plugin.so"] = ""
	}
}

func TestEachCheckSaysWhatIsWrongAndWhatMendsIt(t *testing.T) {
	limit := func(name, value string) func(*fake) {
		return func(f *fake) {
			f.files["proc/self/limits"] = name + "  " + value + "  " + value + "  units\n"
		}
	}
	for _, test := range []struct {
		check  string
		change func(*fake)
		level  Level
		says   string
		fix    string
	}{
		{"go", func(f *fake) { f.commands["go env GOVERSION GOTOOLCHAIN"] = "go1.27.0-X:simd\nauto" }, OK, "go1.27.0 builds EPL", ""},
		{"go", func(f *fake) { f.commands["go env GOVERSION GOTOOLCHAIN"] = "go1.24.1\nauto" }, Warning, "go1.24.1 is older than", ""},
		{"go", func(f *fake) { f.commands["go env GOVERSION GOTOOLCHAIN"] = "go1.24.1\nlocal" }, Problem, "go1.24.1 cannot build EPL", "https://go.dev/dl"},
		{"go", func(f *fake) { f.commands["go env GOVERSION GOTOOLCHAIN"] = "go1.20\nauto" }, Problem, "go1.20 cannot build EPL", "https://go.dev/dl"},
		{"go", func(f *fake) { f.commands["go env GOVERSION GOTOOLCHAIN"] = "!go: no home" }, Problem, "The go command fails: go: no home.", "go env"},
		{"go", func(f *fake) { f.commands = nil }, OK, "There is no go command here", ""},
		{"simd", func(f *fake) { f.commands["go env GOEXPERIMENT"] = "" }, Warning, "uses AVX-512, but programs are built without", "go env -w GOEXPERIMENT=simd"},
		{"simd", func(f *fake) { f.level = isa.Portable }, Warning, "neither AVX2 nor AVX-512", ""},
		{"simd", func(f *fake) { f.wrongISA = errors.New("epl: EPL_CPU_ISA=sse: there is no such") }, Problem, "EPL_CPU_ISA=sse", "unset EPL_CPU_ISA"},
		{"cores", func(f *fake) { f.files["proc/self/status"] = "Cpus_allowed_list: 2-3\n" }, OK, "2 of 8 cores.", ""},
		{"cores", func(f *fake) { f.files["sys/fs/cgroup/job/cpu.max"] = "250000 100000\n" }, OK, "2.5 of 8 cores, as the control group allows.", ""},
		{"cores", func(f *fake) { f.files["sys/fs/cgroup/cpu.max"] = "50000 100000" }, Warning, "allows 0.5 of a core", "raise the CPU limit"},
		{"cores", func(f *fake) { f.files["sys/fs/cgroup/cpu.max"] = "max 100000" }, OK, "8 of 8 cores.", ""},
		{"cores", func(f *fake) {
			f.files["proc/self/cgroup"] = "3:cpu,cpuacct:/job\n1:memory:/job"
			f.files["sys/fs/cgroup/cpu/job/cpu.cfs_quota_us"], f.files["sys/fs/cgroup/cpu/job/cpu.cfs_period_us"] = "400000", "100000"
		}, OK, "4 of 8 cores, as the control group allows.", ""},
		{"cores", func(f *fake) { f.env["GOMAXPROCS"] = "16" }, Warning, "GOMAXPROCS=16, but this process may use 8 cores", "unset GOMAXPROCS"},
		{"numa", func(f *fake) { f.files["sys/devices/system/node/online"] = "0-1" }, OK, "epl-launch -n 2 keeps", ""},
		{"memory", func(f *fake) { f.files["sys/fs/cgroup/job/memory.max"] = "536870912" }, Warning, "512 MiB of memory is left by the control group", "raise the memory limit"},
		{"memory", func(f *fake) { f.files["sys/fs/cgroup/job/memory.max"] = "max" }, OK, "8.0 GiB of memory", ""},
		{"memory", limit("Max address space", "4294967296"), Warning, "limited to 4.0 GiB", "ulimit -v unlimited"},
		{"shared memory", func(f *fake) { f.files["proc/sys/kernel/yama/ptrace_scope"] = "1" }, Warning, "ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0"},
		{"shared memory", func(f *fake) {
			f.files["proc/sys/kernel/yama/ptrace_scope"], f.files["proc/self/status"] = "1", "CapEff:\t000001ffffffffff\n"
		}, OK, "can share memory", ""},
		{"/dev/shm", func(f *fake) { f.shm = 64 << 20 }, OK, "64 MiB; only NCCL needs it.", ""},
		{"/dev/shm", func(f *fake) { f.shm = 64 << 20; gpuFiles(f, "", "") }, Warning, "has 64 MiB, which is too little", "--shm-size"},
		{"/dev/shm", func(f *fake) { f.shm = 0; gpuFiles(f, "", "") }, Problem, "There is no /dev/shm", "mount -t tmpfs"},
		{"open files", limit("Max open files", "1024"), Warning, "may open 1024 files", "ulimit -n 65536"},
		{"open files", limit("Max open files", "64"), Problem, "may open 64 files", "ulimit -n 65536"},
		{"processes", limit("Max processes", "100"), Warning, "may have 100 processes", "ulimit -u 65536"},
		{"locked memory", func(f *fake) { f.files["sys/class/infiniband/mlx5_0/x"] = "" }, Problem, "may lock 8 MiB: MPI and NCCL over InfiniBand (mlx5_0)", "ulimit -l unlimited"},
		{"loopback", func(f *fake) { f.listen = errors.New("no such interface") }, Problem, "no such interface", "ip link set lo up"},
		{"port", func(f *fake) { f.listen = errors.New("address already in use") }, Warning, "Port 29870", "epl-launch --port"},
		{"clock", func(f *fake) { f.synced = false }, Warning, "not synchronised by NTP", "timedatectl set-ntp true"},
		{"settings", func(f *fake) { f.settings = errors.New("epl: EPL_ZERO_LEVEL=v9") }, Problem, "EPL_ZERO_LEVEL=v9.", "epl config"},
		{"job", func(f *fake) { f.env["EPL_WORKER_INDEX"] = "1" }, Problem, `EPL_WORKER_INDEX="1" is set, but EPL_NUM_WORKERS is not`, "unset"},
		{"job", func(f *fake) { f.env["RANK"], f.env["WORLD_SIZE"] = "1", "4" }, OK, "worker 1 of 4, as torchrun says", ""},
		{"ssh", func(f *fake) { delete(f.commands, "ssh") }, OK, "There is no ssh here", ""},
		{"mpi", func(f *fake) { f.commands["mpirun --version"] = "mpirun (Open MPI) 4.1.4\n\nReport bugs" }, OK, "mpirun (Open MPI) 4.1.4.", ""},
		{"mpi", func(f *fake) { f.commands["mpirun --version"] = "!a library\nis missing" }, Warning, "mpirun fails: is missing.", "mpirun --version"},
		{"slurm", func(f *fake) { f.commands["sinfo --noheader --format=%D %T"] = "3 idle\n1 down" }, OK, "3 idle, 1 down", ""},
		{"slurm", func(f *fake) { f.commands["sinfo --noheader --format=%D %T"] = "!Unable to contact slurm controller" }, Warning, "Unable to contact", "scontrol ping"},
		{"kubernetes", func(f *fake) { f.env["KUBERNETES_SERVICE_HOST"] = "10.0.0.1" }, OK, "a pod", ""},
		{"kubernetes", func(f *fake) { f.commands[kubectl] = "yes" }, OK, "may create jobs", ""},
		{"kubernetes", func(f *fake) { f.commands[kubectl] = "!no" }, Warning, "may not create jobs", "kubectl config set-context"},
		{"kubernetes", func(f *fake) { f.commands[kubectl] = "!connection refused" }, Warning, "reaches no cluster: connection refused.", "kubectl config use-context"},
		{"gpu", func(f *fake) { gpuFiles(f, "580.65.06", "") }, OK, "2 GPUs with driver 580.65.06.", ""},
		{"gpu", func(f *fake) { gpuFiles(f, "", "") }, Problem, "driver is not loaded", "modprobe nvidia"},
		{"gpu", func(f *fake) { gpuFiles(f, "580.65.06", ""); delete(f.files, "dev/nvidia-uvm") }, Problem, "no /dev/nvidia-uvm", "nvidia-modprobe"},
		{"gpu plugin", func(f *fake) { gpuFiles(f, "580.65.06", "") }, Problem, "no XLA plugin", `pip install "jax[cuda13]"`},
		{"gpu plugin", func(f *fake) { gpuFiles(f, "550.54.15", "") }, Problem, "no XLA plugin", `pip install "jax[cuda12]"`},
		{"gpu plugin", func(f *fake) { gpuFiles(f, "550.54.15", "cuda13") }, Problem, "is for CUDA 13, which needs driver 580", `pip install "jax[cuda12]"`},
		{"gpu plugin", func(f *fake) { gpuFiles(f, "550.54.15", "cuda12") }, OK, "xla_cuda12/xla_cuda_plugin.so", ""},
	} {
		machine := healthy()
		test.change(machine)
		for _, f := range Machine(machine.system(t)) {
			if f.Check == test.check && (f.Level != test.level || !strings.Contains(f.Says, test.says) || !strings.Contains(f.Fix, test.fix) || test.level == OK && f.Fix != "") {
				t.Errorf("got %+v, want %+v", f, test)
			}
		}
	}
}

func TestTheGoThatIsAskedForIsThatOfTheModule(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil || !strings.Contains(string(text), "\ngo "+strings.TrimPrefix(minGo, "go")+"\n") {
		t.Errorf("go.mod does not ask for %s: %v", minGo, err)
	}
}

// Whatever this machine is like, its checks end, and say something.
func TestThisMachineCanBeChecked(t *testing.T) {
	s := Here()
	s.Run = func(string, ...string) (string, error) { return "", exec.ErrNotFound } // others may be slow
	all := Machine(s)
	if len(all) != len(checks) {
		t.Errorf("%d findings of %d checks", len(all), len(checks))
	}
	for _, f := range all {
		if f.Says == "" || f.Level == Problem && f.Fix == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestFindingsAreWrittenForPeopleAndForPrograms(t *testing.T) {
	all := []Finding{
		{Check: "go", Level: OK, Says: "It is there."},
		{Host: "b", Check: "port", Level: Problem, Says: "It is taken.", Fix: "use another"},
	}
	var text, program strings.Builder
	if err := Text(&text, all); err != nil {
		t.Fatal(err)
	}
	want := "ok       go       It is there.\nproblem  b: port  It is taken.\n                  fix: use another\n2 findings, 0 warnings, 1 problem\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
	if err := JSON(&program, all); err != nil || !strings.Contains(program.String(), `"problems": 1`) || !strings.Contains(program.String(), `"fix": "use another"`) {
		t.Error(program.String(), err)
	}
}
