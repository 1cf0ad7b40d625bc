// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os/exec"
	"strings"

	"github.com/easyparallel/epl/cluster"
)

func (s *System) settings() Finding {
	if err := s.Settings(); err != nil {
		return problem("epl config lists keys and their values", "%s.", strings.TrimPrefix(err.Error(), "epl: "))
	}
	return ok("The configuration in the environment is valid.")
}

// job looks at what the environment says of the job that a program would be a worker of.
func (s *System) job() Finding {
	a, found, err := cluster.FindAllocation(s.Env)
	if err == nil && !found {
		_, err = cluster.FromEnvironment(s.Env, 0, nil)
	}
	switch {
	case err != nil:
		return problem("unset the variable, or let epl-launch start the program", "%s.", strings.TrimPrefix(err.Error(), "epl: "))
	case found:
		return ok("A program started here is worker %d of %d, as %s says.", a.Index, a.Workers, a.By)
	}
	return ok("The environment describes no job: a program started here is the only worker.")
}

func (s *System) ssh() Finding {
	if _, err := s.Path("ssh"); err != nil {
		return ok("There is no ssh here, which only epl-launch --hosts needs.")
	}
	return ok("ssh is here, for epl-launch --hosts; epl doctor --hosts tries it.")
}

func (s *System) mpi() Finding {
	out, err := s.Run("mpirun", "--version")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return ok("There is no mpirun here, which only communication.backend=mpi needs.")
	case err != nil:
		return warning("mpirun --version", "mpirun fails: %s.", lastLine(out))
	}
	return ok("%s.", firstLine(out))
}

func (s *System) slurm() Finding {
	out, err := s.Run("sinfo", "--noheader", "--format=%D %T")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return ok("There is no Slurm here.")
	case err != nil:
		return warning("scontrol ping", "Slurm's controller does not answer: %s.", lastLine(out))
	}
	return ok("Slurm has nodes: %s.", strings.Join(strings.Fields(strings.ReplaceAll(out, "\n", ", ")), " "))
}

func (s *System) kubernetes() Finding {
	if s.env("KUBERNETES_SERVICE_HOST") != "" {
		return ok("This is a pod of Kubernetes.")
	}
	out, err := s.Run("kubectl", "auth", "can-i", "create", "jobs", "--request-timeout=5s")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return ok("There is no kubectl here.")
	case lastLine(out) == "yes":
		return ok("kubectl may create jobs.")
	case lastLine(out) == "no":
		return warning("kubectl config set-context --current --namespace=NAME", "kubectl reaches a cluster, but may not create jobs there.")
	}
	return warning("kubectl config use-context NAME", "kubectl is here, but reaches no cluster: %s.", lastLine(out))
}
