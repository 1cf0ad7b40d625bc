// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io"
	"strings"
	"text/template"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// Generate writes what starts the job elsewhere: kind "slurm" is a script for sbatch, "k8s" are manifests for kubectl, and "jobset" are those with a JobSet
// instead of a Job.
func Generate(w io.Writer, kind string, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	switch kind {
	case "slurm":
		return generateSlurm(w, o)
	case "k8s", "jobset":
		if o.Dashboard {
			return errors.New("epl: --dashboard is not for --generate " + kind + ": workers run there without a launcher; let the program call epl.Init with epl.WithDashboard(\"\"), and reach it by kubectl port-forward")
		}
		return generateKubernetes(w, kind, o, wire.NewToken())
	}
	return errors.Errorf("epl: --generate %q: expected slurm, k8s or jobset", kind)
}

// jobName is what the scheduler calls the job: the label, or after the command. Kubernetes wants a name that DNS takes.
func jobName(o Options) string {
	name := o.TaskLabel
	if name == "" {
		name = o.Command[0]
		if _, packages, _, ok := splitGoRun(o.Command); ok {
			name = packages[0]
		}
		name = strings.TrimRight(name, "/.")
		name = name[strings.LastIndexByte(name, '/')+1:]
		name, _, _ = strings.Cut(name, ".")
	}
	name = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name, "-"); name == "" || name[0] >= '0' && name[0] <= '9' {
		name = strings.Trim("epl-"+name, "-")
	}
	return name[:min(len(name), 50)] // the names of pods are longer, and have a limit
}

// shellQuote returns a word as a shell reads it.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./=:,@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func shellJoin(words []string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, shellQuote(word))
	}
	return strings.Join(quoted, " ")
}

var slurmScript = template.Must(template.New("sbatch").Funcs(template.FuncMap{"join": shellJoin}).Parse(`#!/bin/sh
# Made by epl-launch --generate slurm. Submit it with sbatch; add --partition, --time and what else the cluster asks for.
#SBATCH --job-name={{.Name}}
#SBATCH --ntasks={{.Workers}}
{{- if .Nodes}}
#SBATCH --nodes={{.Nodes}}
#SBATCH --ntasks-per-node={{.PerNode}}
{{- end}}
{{- if .GPUs}}
#SBATCH --gpus-per-task={{.GPUs}}
{{- end}}
#SBATCH --output={{.Name}}-%j.out
{{- if .Elastic}}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@{{.Warning}}
{{- end}}

# Who knows the token may join the job, so it is made here, and travels by environment only.
umask 077
EPL_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export EPL_TOKEN
{{- if .Elastic}}

# The launchers meet at this node, and the workers at the port after that. A lost node does not end the others; without this one Slurm
# queues the job again, and it goes on from its checkpoint.
EPL_RDZV="first://$(hostname):$((20000 + SLURM_JOB_ID % 5000 * 2))"
export EPL_RDZV

# {{.Warning}} seconds before the time limit Slurm sends USR1. Workers whose checkpoints are saved on signals (OnSignal) save and end, and the job is queued again.
again=
trap 'again=1; kill -USR1 "$launchers"' USR1

# One launcher for each worker: it finds its place in the variables of Slurm.
srun --export=ALL --kill-on-bad-exit=0 --no-kill {{join .Launcher}} &
launchers=$!
wait "$launchers"
status=$?
while kill -0 "$launchers" 2>/dev/null; do # the signal came first
	wait "$launchers"
	status=$?
done
if [ -n "$again" ]; then
	scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
{{- else}}

# One launcher for each worker: it finds its place in the variables of Slurm.
exec srun --export=ALL --kill-on-bad-exit=1 {{join .Launcher}}
{{- end}}
`))

// slurmWarning is how long before the time limit an elastic job is told, unless Grace is longer.
const slurmWarning = 2 * time.Minute

// generateSlurm writes a script for sbatch.
func generateSlurm(w io.Writer, o Options) error {
	nodes, perNode, err := nodes(o)
	if err != nil {
		return err
	}
	gpus := 0
	if o.GPUs {
		gpus = o.DevicesPerWorker
	}
	launcher := append([]string{"epl-launch"}, o.launcherFlags()...)
	if o.DevicesPerWorker > 0 {
		launcher = append(launcher, "--devices_per_worker", itoa(o.DevicesPerWorker))
	}
	for _, flag := range [][2]string{{"--log_dir", o.LogDir}, {"--task_label", o.TaskLabel},
		{"--plan", o.Plan}, {"--tls_cert", o.TLSCert}, {"--tls_key", o.TLSKey}, {"--tls_ca", o.TLSCA}} {
		if flag[1] != "" {
			launcher = append(launcher, flag[0], flag[1])
		}
	}
	if o.Dashboard { // the launcher of the first worker shows it
		launcher = append(launcher, strings.TrimSuffix("--dashboard="+o.DashboardAddress, "="))
	}
	return slurmScript.Execute(w, struct {
		Name                          string
		Workers, Nodes, PerNode, GPUs int
		Launcher                      []string
		Elastic                       bool
		Warning                       int
	}{jobName(o), max(o.Workers, 1) + o.Spares, nodes, perNode, gpus, append(launcher, o.Command...), o.MinWorkers > 0, int(max(o.Grace, slurmWarning).Seconds())})
}

// launcherFlags are what each launcher is told.
func (o Options) launcherFlags() (flags []string) {
	if o.MinWorkers > 0 {
		flags = []string{"--num_workers", fmt.Sprintf("%d:%d", o.MinWorkers, max(o.Workers, 1)), "--max_restarts", itoa(o.MaxRestarts)}
	}
	if o.Spares > 0 {
		flags = append(flags, "--spares", itoa(o.Spares))
	}
	if o.RestartDelay > 0 {
		flags = append(flags, "--restart_delay", o.RestartDelay.String())
	}
	if o.Grace > 0 {
		flags = append(flags, "--grace", o.Grace.String())
	}
	return flags
}

// nodes says over how many machines the workers are spread, and how many each has; 0 leaves it to the scheduler.
func nodes(o Options) (machines, each int, err error) {
	if machines = o.NumMachines; machines == 0 {
		return 0, 0, nil
	}
	all := make([]machine, machines)
	if err := deal(all, o.Workers+o.Spares); err != nil {
		return 0, 0, err
	}
	return machines, all[0].count, nil
}
