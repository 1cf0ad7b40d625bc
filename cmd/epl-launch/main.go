// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command epl-launch starts the workers of a job, on this machine or on several, and looks after them until they end.
//
//	epl-launch -n 2 --gpu_per_worker 2 go run ./examples/quickstart    two workers here
//	epl-launch --hosts a,b:2 ./train                                              by ssh: one worker on a, two on b
//	srun epl-launch ./train                                                       as one worker of an allocation
//	epl-launch --generate slurm --num_workers 8 ./train                           a script for sbatch
//
// docs/launching.md is the guide.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/launch"
)

func main() {
	// Those that end other programs end the job here, but for SIGUSR1, which the workers get. SIGPIPE does not: every connection that somebody closes raises it, and
	// whether nobody reads standard output any more is known from writes to it. It is caught all the same, because by
	// default a write to a closed standard output would end this process and leave the workers to the guard; and not
	// ignored, because the workers would inherit that.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, signals))
}

// run executes one command line and returns its exit status. An error is one message on stderr.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	status := 0
	root := newCommand(stdin, signals, &status)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	usage.Prepare(root)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(stderr, launch.Wrap(stderr, usage.Message(err)))
		return max(status, usage.Wrong)
	}
	return status
}

func newCommand(stdin io.Reader, signals <-chan os.Signal, status *int) *cobra.Command {
	o := launch.Options{Signals: signals}
	var generate, ssh string
	var agent, guard bool
	command := &cobra.Command{
		Use:   "epl-launch [flags] command [arguments]",
		Short: "Start the workers of a job, here or on several machines, and look after them",
		Long: `Start the workers of a job, here or on several machines, and look after them: each line of their output is prefixed with the
worker's index, and when one fails the others are ended. docs/launching.md is the guide.

Exit codes: 0 fine; 2 wrong usage, nothing was started; else that of the worker that failed first (128 + the signal's number if
a signal ended it).`,
		Example: `  epl-launch -n 2 go run ./examples/quickstart                     two workers here
  epl-launch -n 2 --devices_per_worker 2 ./train -batch 32         with two devices each
  epl-launch --hosts a,b:2 ./train                                 by ssh: one worker on a, two on b
  srun epl-launch ./train                                          as one worker of an allocation
  epl-launch -n 2:4 --max_restarts 5 ./train                       started anew from its checkpoint when a worker is lost
  epl-launch -n 2 --dashboard ./train                              shown in a browser while it runs
  epl-launch --generate slurm -n 8 ./train                         a script for sbatch`,
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case agent:
				*status = launch.Agent(stdin, cmd.OutOrStdout(), signals, self())
				return nil
			case guard:
				launch.Guard(stdin)
				return nil
			}
			if args, err = dashboardAddress(cmd.Flags(), &o, args); err != nil {
				return err
			}
			changed := cmd.Flags().Changed
			if changed("num_workers") && o.Workers == 0 {
				return errors.New("epl: --num_workers 0: expected a number of at least 1")
			}
			if (changed("max_restarts") || changed("restart_delay") || changed("spares")) && o.MinWorkers == 0 {
				o.Workers = max(o.Workers, 1)
				o.MinWorkers = o.Workers
			}
			if o.MinWorkers == 0 {
				o.MaxRestarts = 0
			}
			if changed("gpu_per_worker") && changed("devices_per_worker") {
				return errors.New("epl: --gpu_per_worker and --devices_per_worker are two names for one flag; give one of them")
			}
			if (changed("gpu_per_worker") || changed("devices_per_worker")) && o.DevicesPerWorker == 0 {
				return errors.New("epl: --gpu_per_worker 0: expected a number of at least 1; leave it out to let the program decide")
			}
			if changed("grace") && o.Grace == 0 {
				return usage.Errorf("epl: --grace 0s: expected at least 3s")
			}
			o.Command, o.GPUs, o.SSH, o.Self = args, changed("gpu_per_worker"), strings.Fields(ssh), self()
			o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if changed("hosts") && strings.Trim(o.Hosts, ", ") == "" {
				return usage.Errorf("epl: --hosts names no machine; name some, such as a,b:2, or leave it out")
			}
			if changed("ssh") && o.Hosts == "" {
				return usage.Errorf("epl: --ssh is how the machines of --hosts are reached: name them, or leave it out")
			}
			for _, flag := range []string{"image", "queue"} {
				if manifests := generate == "k8s" || generate == "jobset"; changed(flag) && !manifests {
					return usage.Errorf("epl: --%s is for manifests: add --generate k8s or jobset, or leave it out", flag)
				}
			}
			if changed("generate") {
				return launch.Generate(o.Stdout, generate, o)
			}
			*status, err = launch.Run(context.Background(), o)
			return err
		},
	}
	command.SetVersionTemplate("epl-launch {{.Version}}\n")
	flags := command.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
	})
	flags.SortFlags = false
	flags.VarP((*workerCount)(&o), "num_workers", "n", "workers of the job, on all machines together (default 1); MIN:MAX makes it elastic")
	flags.IntVar(&o.MaxRestarts, "max_restarts", defaultRestarts, "of an elastic job: how often workers are started anew after failures, without a new checkpoint in between")
	flags.DurationVar(&o.RestartDelay, "restart_delay", 0, "of an elastic job: how long a worker that failed stays out, and the others go on without it")
	flags.IntVar(&o.Spares, "spares", 0, "of an elastic job: room for so many more workers, which take the places of those that are lost")
	flags.IntVar(&o.DevicesPerWorker, "gpu_per_worker", 0, "devices of each worker (default: as the program says)")
	flags.IntVar(&o.DevicesPerWorker, "devices_per_worker", 0, "the same, for devices that are no GPUs")
	flags.StringVar(&o.Plan, "plan", "", "plan that all workers run by, as epl plan --json wrote it; the file is on every machine")
	flags.BoolVar(&o.NoPin, "no_pin", false, "let workers run on all cores of their machine, not each on cores of its own")
	flags.StringVar(&o.Hosts, "hosts", "", "machines to start workers on by ssh: a,b:2 has two workers on b")
	flags.StringVar(&ssh, "ssh", "", "command that runs a command on a host (default ssh -o BatchMode=yes -o ServerAliveInterval=5)")
	flags.StringVar(&o.MachineList, "machine_list", "", "machines on each of which epl-launch is started: a,b or a:29870,b")
	flags.IntVar(&o.MachineRank, "machine_rank", 0, "this machine's number in the list")
	flags.IntVar(&o.NumMachines, "num_machines", 0, "machines that meet at an etcd, or nodes for --generate slurm")
	flags.StringVar(&o.Rendezvous, "rdzv", "", "where machines meet: etcd://HOST:PORT/PREFIX, or tcp://HOST:PORT for the first machine as others see it")
	flags.IntVar(&o.Port, "port", 0, fmt.Sprintf("where the first of several machines listens (default %d)", launch.DefaultPort))
	flags.StringVar(&o.TLSCert, "tls_cert", "", "certificate for connections between workers, a PEM file")
	flags.StringVar(&o.TLSKey, "tls_key", "", "its key, a PEM file")
	flags.StringVar(&o.TLSCA, "tls_ca", "", "the authority that signed the certificates of all workers, a PEM file")
	flags.StringVar(&o.LogDir, "log_dir", "", "directory for logs: DIR/LABEL/worker-N.log")
	flags.StringVar(&o.TaskLabel, "task_label", "", "name of this run (default: the time)")
	flags.Var((*dashboardFlag)(&o), "dashboard", "show the job in a browser, at `HOST:PORT`; here is a port of this machine that others do not reach, elsewhere the URL has a token")
	flags.Lookup("dashboard").NoOptDefVal = here
	flags.DurationVar(&o.Grace, "grace", 0, "how long workers may take to end after a signal, for example to save a checkpoint (default 3s)")
	flags.BoolVar(&o.Debug, "debug", false, "say what is done")
	flags.StringVar(&generate, "generate", "", "write a script for sbatch (slurm) or manifests (k8s, jobset) to standard output")
	flags.StringVar(&o.Image, "image", launch.DefaultImage, "container image that the manifests name")
	flags.StringVar(&o.Queue, "queue", "", "LocalQueue of Kueue that the manifests wait in")
	flags.BoolVar(&agent, "agent", false, "run workers for epl-launch on another machine")
	flags.BoolVar(&guard, "guard", false, "end the workers of a launcher that was killed")
	for _, hidden := range []string{"agent", "guard"} {
		flags.Lookup(hidden).Hidden = true
	}
	return command
}

// defaultRestarts is how often the workers of an elastic job are started anew, unless told otherwise.
const defaultRestarts = 3

// workerCount is the flag for how many workers there are: N, or MIN:MAX.
type workerCount launch.Options

// Set implements pflag.Value.
func (w *workerCount) Set(text string) (err error) {
	low, high, elastic := strings.Cut(text, ":")
	if !elastic {
		w.Workers, err = strconv.Atoi(text)
		w.MinWorkers = 0
	} else if w.MinWorkers, err = strconv.Atoi(low); err == nil {
		if w.Workers, err = strconv.Atoi(high); err == nil && (w.MinWorkers < 1 || w.Workers < w.MinWorkers) {
			err = errors.New("MIN is at least 1, and MAX at least MIN")
		}
	}
	if err != nil {
		return errors.Errorf("expected a number, or MIN:MAX such as 2:4 (%v)", err)
	}
	return nil
}

// String implements pflag.Value.
func (w *workerCount) String() string {
	switch {
	case w.Workers == 0:
		return ""
	case w.MinWorkers > 0:
		return fmt.Sprintf("%d:%d", w.MinWorkers, w.Workers)
	}
	return strconv.Itoa(w.Workers)
}

// Type implements pflag.Value.
func (w *workerCount) Type() string { return "workers" }

// here stands for a port of this machine.
const here = "here"

// dashboardFlag is the flag for the dashboard: its address, which may be left out.
type dashboardFlag launch.Options

// Set implements pflag.Value.
func (d *dashboardFlag) Set(text string) error {
	d.Dashboard, d.DashboardAddress = true, ""
	if text == here {
		return nil
	}
	d.DashboardAddress = text
	if err := dashboard.CheckAddress(text); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "epl: "))
	}
	return nil
}

// String implements pflag.Value.
func (d *dashboardFlag) String() string { return d.DashboardAddress }

// Type implements pflag.Value.
func (d *dashboardFlag) Type() string { return "address" }

// dashboardAddress takes an address that follows --dashboard as a word of its own, with the flags after it: no command has the form HOST:PORT.
func dashboardAddress(flags *pflag.FlagSet, o *launch.Options, args []string) (command []string, err error) {
	if !o.Dashboard || o.DashboardAddress != "" || len(args) == 0 || !strings.Contains(args[0], ":") || dashboard.CheckAddress(args[0]) != nil {
		return args, nil
	}
	o.DashboardAddress = args[0]
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	return flags.Args(), nil
}

// self is this program, even if its file has been replaced meanwhile.
func self() []string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return []string{path}
}
