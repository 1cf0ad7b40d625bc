// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
)

// DefaultPort is where the launchers and workers of several machines meet, unless told otherwise.
const DefaultPort = 29870

// DefaultSSH is the command that runs a command on a host, unless told otherwise. It asks no questions.
var DefaultSSH = []string{"ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"}

// Options say what to run, and where. The zero value of a field is its default.
type Options struct {
	// Command is what each worker runs. A script that is not executable is run by sh, and "go run" builds once.
	Command []string
	// Workers is how many workers the job has, on all machines together. 0: what Hosts says, else 1.
	Workers int
	// MinWorkers makes the job elastic: when a worker is lost, the workers are started anew, and go on from their checkpoint. Fewer than Workers
	// are enough then, but not fewer than this. 0: the job ends when a worker fails.
	MinWorkers int
	// MaxRestarts is how often the workers of an elastic job are started anew because of failures without a new checkpoint in between.
	MaxRestarts int
	// RestartDelay is how long a worker that has failed stays out of an elastic job. The others go on without it meanwhile, if they are enough.
	RestartDelay time.Duration
	// Spares is for how many more workers an elastic job has room: they take the places of those that are lost.
	Spares int
	// DevicesPerWorker is how many devices each worker has. 0: as many as the program says.
	DevicesPerWorker int
	// GPUs says that these devices are GPUs, for the files that [Generate] writes.
	GPUs bool

	// Hosts are machines to start workers on by ssh: "a,b:2" has two workers on b.
	Hosts string
	// SSH is the command that runs a command on a host. Empty: ssh, which must not ask questions.
	SSH []string
	// MachineList names the machines of a job whose launcher is started on each of them by the user: "a,b" or "a:29870,b".
	MachineList string
	// MachineRank is this machine's number in MachineList.
	MachineRank int
	// NumMachines is how many machines meet at an etcd.
	NumMachines int
	// Rendezvous is where launchers of several machines meet: tcp://HOST:PORT, which is the first machine as the others
	// see it, or etcd://HOST:PORT/PREFIX.
	Rendezvous string
	// Port is where the first machine listens. 0: [DefaultPort], or any free port in a job of one machine.
	Port int
	// TLSCert, TLSKey and TLSCA are PEM files for connections over a network that is not trusted: all, or none.
	TLSCert, TLSKey, TLSCA string

	// Plan is a file with the plan that all workers run by. It has the same name on every machine; the manifests for
	// Kubernetes carry it. Empty: the first worker decides.
	Plan string

	// NoPin lets the workers of a machine run on all of its cores, as few threads as are their share. Otherwise each has
	// cores of its own, on Linux.
	NoPin bool

	// LogDir is a directory for the workers' output: LogDir/TaskLabel/worker-N.log. Empty: no logs.
	LogDir string
	// TaskLabel names this run. Empty: the time.
	TaskLabel string
	// Dashboard serves a page about the job, at DashboardAddress: HOST:PORT. Empty: a port of this machine, for this machine. Where others reach it, a
	// token is needed, which is part of the URL that is said.
	Dashboard        bool
	DashboardAddress string
	// Debug says what is done.
	Debug bool
	// Grace is how long workers may take to end after a signal, before they are killed. 0: 3 seconds.
	Grace time.Duration
	// Image is the container image that generated manifests name.
	Image string
	// Queue is the LocalQueue of Kueue that generated manifests wait in. Empty: they begin at once.
	Queue string

	// Environ is the environment of the launcher, NAME=value. nil: os.Environ().
	Environ []string
	// Stdout and Stderr take the workers' output. nil: this process's own.
	Stdout, Stderr io.Writer
	// Signals brings SIGINT, SIGTERM and the like: the first ends the workers, the second kills them. SIGUSR1 is passed on to them, and that is all.
	Signals <-chan os.Signal
	// Self is the command that calls [Agent] when given the argument "--agent", and [Guard] when given "--guard".
	// Empty: this executable.
	Self []string

	// plain says that streams are not to be taken for terminals, even if they look like one: Open MPI's do, and several
	// launchers share them.
	plain bool
	// allocated says that a scheduler has described the job.
	allocated bool
}

// grace is how long workers may take to end.
func (o *Options) grace() time.Duration { return cmp.Or(o.Grace, killAfter) }

// check refuses what makes no sense whatever the machine, and fills in defaults.
func (o *Options) check() error {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if len(o.SSH) == 0 {
		o.SSH = slices.Clone(DefaultSSH)
	}
	if len(o.Self) == 0 {
		self, err := os.Executable()
		if err != nil {
			return errors.Errorf("epl: cannot find the launcher's own program: %v", err)
		}
		o.Self = []string{self}
	}
	if len(o.Command) == 0 {
		return errors.New("epl: there is no command to run; give one after the flags, such as: " +
			"epl-launch --num_workers 2 go run ./examples/quickstart")
	}
	if o.Workers < 0 {
		return errors.Errorf("epl: --num_workers %d: expected a number of at least 1", o.Workers)
	}
	if err := o.checkElastic(); err != nil {
		return err
	}
	if o.DevicesPerWorker < 0 {
		return errors.Errorf("epl: --gpu_per_worker %d: expected a number of at least 1", o.DevicesPerWorker)
	}
	if o.DevicesPerWorker > cluster.MaxDevicesPerWorker {
		return errors.Errorf("epl: --gpu_per_worker %d: a worker has at most %d devices; use more workers", o.DevicesPerWorker, cluster.MaxDevicesPerWorker)
	}
	if o.Grace != 0 && o.Grace < killAfter {
		return errors.Errorf("epl: --grace %v: expected at least %v", o.Grace, killAfter)
	}
	if o.Port < 0 || o.Port > 65535 {
		return errors.Errorf("epl: --port %d: expected a number from 1 to 65535", o.Port)
	}
	if label := o.TaskLabel; label == "." || label == ".." || strings.ContainsAny(label, `/\`) || label != filepath.Base(label) && label != "" {
		return errors.Errorf("epl: --task_label %q: expected a name for a directory, without separators", label)
	}
	if o.Plan != "" {
		file, err := filepath.Abs(o.Plan)
		if err == nil {
			_, err = os.Stat(file)
		}
		if err != nil {
			return errors.Errorf("epl: --plan %s: %v", o.Plan, err)
		}
		o.Environ = append(slices.Clone(o.Environ), envPlanFile+"="+file)
	}
	if set := given(o.TLSCert, o.TLSKey, o.TLSCA); set != 0 && set != 3 {
		return errors.New("epl: --tls_cert, --tls_key and --tls_ca belong together; give all three, or none")
	}
	return nil
}

// checkPlaces refuses contradictions about where the workers run.
func (o *Options) checkPlaces() error {
	etcd := strings.HasPrefix(o.Rendezvous, "etcd://")
	places := map[string]bool{"--hosts": o.Hosts != "", "--machine_list": o.MachineList != "", "--rdzv etcd://…": etcd}
	var chosen []string
	for _, flag := range []string{"--hosts", "--machine_list", "--rdzv etcd://…"} {
		if places[flag] {
			chosen = append(chosen, flag)
		}
	}
	if len(chosen) > 1 {
		return errors.Errorf("epl: %s and %s both say where the workers run; give one of them", chosen[0], chosen[1])
	}
	switch {
	case o.Rendezvous != "" && !etcd && !strings.HasPrefix(o.Rendezvous, "tcp://"):
		return errors.Errorf("epl: --rdzv %q: expected tcp://HOST:PORT or etcd://HOST:PORT/PREFIX", o.Rendezvous)
	case o.Rendezvous != "" && !etcd && o.Hosts == "" && o.MachineList == "":
		return errors.New("epl: --rdzv tcp://… says how other machines reach the first one, but there are no others; " +
			"name them by --hosts or --machine_list")
	case etcd && o.NumMachines < 1:
		return errors.Errorf("epl: --num_machines %d: expected how many machines meet at the etcd, at least 1", o.NumMachines)
	case !etcd && o.NumMachines != 0:
		return errors.New("epl: --num_machines is for machines that meet at an etcd; add --rdzv etcd://HOST:PORT/PREFIX")
	case o.MachineList == "" && o.MachineRank != 0:
		return errors.Errorf("epl: --machine_rank %d needs --machine_list", o.MachineRank)
	}
	return nil
}

// unused returns those variables of the environment that describe a job to its workers, while this launcher describes
// another one to them. A launcher that a worker of a job starts has inherited them.
func (o *Options) unused() (vars []string) {
	if _, inherited := o.lookup(envMark); inherited {
		return nil
	}
	for _, name := range []string{cluster.EnvNumWorkers, cluster.EnvWorkerIndex, cluster.EnvWorkerHosts, rendezvous.EnvURL} {
		if value, _ := o.lookup(name); strings.TrimSpace(value) != "" {
			vars = append(vars, name)
		}
	}
	return vars
}

// port is where the first of several machines listens.
func (o *Options) port() int {
	if o.Port == 0 {
		return DefaultPort
	}
	return o.Port
}

// given counts the texts that are not empty.
func given(texts ...string) (n int) {
	for _, text := range texts {
		if text != "" {
			n++
		}
	}
	return n
}

// lookup reads the launcher's environment.
func (o *Options) lookup(name string) (string, bool) { return lookup(o.Environ, name) }

// lookup finds a variable in a list of NAME=value. The last one counts.
func lookup(environ []string, name string) (value string, found bool) {
	for _, variable := range environ {
		if n, v, ok := strings.Cut(variable, "="); ok && n == name {
			value, found = v, true
		}
	}
	return value, found
}
