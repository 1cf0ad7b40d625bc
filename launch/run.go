// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// badInput is the exit status for what the user must correct: nothing was started.
const badInput = 2

// maxWorkers bounds the workers of one machine: a number far above its cores is a slip of the pen, and would take the
// machine down before anything says so.
const maxWorkers = 1024

// Run runs a job, or this machine's part of it, to its end. The status is for the process to exit with: 0 if all workers
// ended well, else that of the worker that failed first, or 128 and the number of the signal that ended the job. An error is
// what kept the workers from being started. Cancelling the context is as a SIGTERM.
func Run(ctx context.Context, o Options) (status int, err error) {
	if err := o.check(); err != nil {
		return badInput, err
	}
	if err := o.checkPlaces(); err != nil {
		return badInput, err
	}
	if o.MinWorkers > 0 {
		return runElastic(ctx, o)
	}
	d := newDirector(o)
	var leave func()
	defer func() {
		if d.display != nil {
			d.display.close()
			d.display.over(status, err)
		}
		if leave != nil {
			leave()
		}
	}()
	by, err := interruptible(ctx, o.Signals, func(ctx context.Context) error {
		crews, gone, err := plan(ctx, &o)
		if leave = gone; err != nil {
			return err
		}
		d.display = newDisplay(o)
		d.display.unused(o)
		if err := d.display.show(o, crews[0].First); err != nil {
			return err
		}
		for _, p := range crews {
			if err := d.display.openLogs(o, p.First, p.Count, p.Workers); err != nil {
				return err
			}
		}
		return d.prepare(ctx, o, crews)
	})
	switch {
	case by != 0:
		return 128 + int(by), nil
	case err != nil:
		return badInput, err
	}
	known, err := d.run(ctx, o.Signals)
	d.display.close()
	if err != nil {
		return 1, err
	}
	return d.conclude(known), nil
}

// interruptible runs what may take long before the workers are there to be told, and returns the signal that ended it.
func interruptible(ctx context.Context, signals <-chan os.Signal, f func(context.Context) error) (by syscall.Signal, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err = <-done:
		return 0, err
	case s := <-signals:
		cancel()
		<-done
		if by, ok := s.(syscall.Signal); ok {
			return by, nil
		}
		return syscall.SIGTERM, nil
	}
}

// place is one crew: its spec, and whether it is on this machine.
type place struct {
	spec
	here bool
	join func(ctx context.Context, s spec, say func(report)) (crew, error) // how it is reached; nil: here, or by ssh
}

// newJob is what the crews of a job have in common.
func newJob(o *Options) (spec, error) {
	directory, err := os.Getwd()
	if err != nil {
		return spec{}, errors.Errorf("epl: cannot find the working directory: %v", err)
	}
	job := spec{Command: o.Command, Directory: directory, Devices: o.DevicesPerWorker, NoPin: o.NoPin, Debug: o.Debug, Updates: isTerminal(o.Stderr), Events: o.Dashboard, Grace: o.grace()}
	if value, set := o.lookup(cluster.EnvDevicesPerWorker); set && job.Devices == 0 {
		job.Devices, _ = strconv.Atoi(strings.TrimSpace(value)) // a list of numbers, or nonsense, is the workers' business
	}
	job.TLS.Cert, job.TLS.Key, job.TLS.CA = o.TLSCert, o.TLSKey, o.TLSCA
	if o.TLSCert == "" {
		job.TLS.Cert, _ = o.lookup(rendezvous.EnvTLSCert)
		job.TLS.Key, _ = o.lookup(rendezvous.EnvTLSKey)
		job.TLS.CA, _ = o.lookup(rendezvous.EnvTLSCA)
	}
	return job, nil
}

// plan says which crews this launcher has. leave gives up the places that were claimed at an etcd.
func plan(ctx context.Context, o *Options) (crews []place, leave func(), err error) {
	job, err := newJob(o)
	if err != nil {
		return nil, nil, err
	}
	allocation, found, err := cluster.FindAllocation(o.lookup)
	switch {
	case err != nil:
		return nil, nil, err
	case found:
		o.plain, o.allocated, job.Updates = true, true, false
		if o.TaskLabel == "" && allocation.Job != "" {
			o.TaskLabel = strings.ReplaceAll(allocation.By, " ", "-") + "-" + filepath.Base(allocation.Job) // one for all launchers
		}
		crews, err = allocated(*o, job, allocation)
	case o.Hosts != "":
		crews, err = overSSH(*o, job)
	case o.MachineList != "":
		var machines []machine
		var port int
		if machines, port, err = machineList(o.MachineList, o.MachineRank, o.Workers); err != nil {
			return nil, nil, err
		}
		if o.Port == 0 {
			o.Port = port
		}
		if len(machines) == 1 {
			return alone(job, machines[0].count), nil, nil
		}
		crews, err = oneOfSeveral(*o, job, machines, o.MachineRank, machines[0].name)
	case o.Rendezvous != "":
		return overEtcd(ctx, *o, job)
	default:
		if o.Port != 0 {
			return nil, nil, errors.Errorf("epl: --port %d is where the first of several machines listens, but there are no others; name them by --hosts or --machine_list, or leave it out", o.Port)
		}
		crews = alone(job, max(o.Workers, 1))
	}
	return crews, nil, err
}

// alone is a job on this machine only.
func alone(job spec, workers int) []place {
	job.Token, job.Serve, job.Host = wire.NewToken(), net.JoinHostPort(wire.Loopback(), "0"), hostName()
	job.Workers, job.Count, job.LocalWorkers, job.ShareCores = workers, workers, workers, workers
	return []place{{spec: job, here: true}}
}

// allocated is one worker of a job that a scheduler started, one launcher for each worker.
func allocated(o Options, job spec, a cluster.Allocation) ([]place, error) {
	if o.Workers != 0 && o.Workers != a.Workers {
		return nil, errors.Errorf("epl: --num_workers %d contradicts %s, which started %d workers; leave --num_workers out",
			o.Workers, a.By, a.Workers)
	}
	if o.Hosts != "" || o.MachineList != "" || o.Rendezvous != "" {
		return nil, errors.Errorf("epl: %s has started the workers; leave --hosts, --machine_list and --rdzv out", a.By)
	}
	vars, err := a.Environ(o.lookup)
	if err != nil {
		return nil, err
	}
	job.Workers, job.First, job.Count, job.Hosts, job.Host = a.Workers, a.Index, 1, a.Hosts, hostName()
	job.LocalWorkers, job.LocalIndex, job.ShareCores = a.LocalWorkers, a.LocalIndex, a.LocalWorkers
	if runtime.NumCPU() < cores.Together() {
		job.ShareCores = 1 // each has been given cores of its own
	}
	job.Meet, _ = lookup(vars, rendezvous.EnvURL)
	job.Token, _ = o.lookup(rendezvous.EnvToken)
	return []place{{spec: job, here: true}}, nil
}

// overSSH has a crew on each host. The workers meet at the first: they must reach each other anyway, while this machine may
// be one that only ssh leads out of.
func overSSH(o Options, job spec) ([]place, error) {
	machines, err := hosts(o.Hosts, o.Workers)
	if err != nil {
		return nil, err
	}
	job.Token = wire.NewToken()
	job.Environ = forwarded(o.Environ)
	if err := meetAt(&job, o, machines[0].name); err != nil {
		return nil, err
	}
	var crews []place
	for i, s := range specs(job, machines) {
		if i > 0 {
			s.Serve = ""
		}
		crews = append(crews, place{spec: s})
	}
	return crews, nil
}

// oneOfSeveral is this machine's crew of a job whose other launchers the user starts. They meet at the address.
func oneOfSeveral(o Options, job spec, machines []machine, rank int, address string) ([]place, error) {
	var err error
	if job.Token, err = o.token(); err != nil {
		return nil, err
	}
	if err := meetAt(&job, o, address); err != nil {
		return nil, err
	}
	s := specs(job, machines)[rank]
	if rank > 0 {
		s.Serve = ""
	}
	return []place{{spec: s, here: true}}, nil
}

// token is what the launchers of several machines must have in common.
func (o *Options) token() (string, error) {
	token, _ := o.lookup(rendezvous.EnvToken)
	if token = strings.TrimSpace(token); token == "" {
		return "", errors.New("epl: the launchers of several machines need the same EPL_TOKEN; make one with openssl rand -hex 32, " +
			"and export it on each machine before starting epl-launch")
	}
	return token, nil
}

// meetAt lets the workers of several machines meet at the first one, which is to listen at the address.
func meetAt(job *spec, o Options, address string) error {
	job.Serve, job.Meet = listenAt(address, o.port()), "tcp://"+net.JoinHostPort(address, itoa(o.port()))
	if at, ok := strings.CutPrefix(o.Rendezvous, "tcp://"); ok {
		host, port, err := net.SplitHostPort(at)
		if err != nil || host == "" || port == "" {
			return errors.Errorf("epl: --rdzv %q: expected tcp://HOST:PORT", o.Rendezvous)
		}
		job.Serve, job.Meet = net.JoinHostPort("", port), o.Rendezvous
	}
	return nil
}

// prepare makes the crews, all at the same time: connecting and building take a while.
func (d *director) prepare(ctx context.Context, o Options, places []place) error {
	d.hosts = map[int]string{}
	for _, p := range places {
		if p.Count > maxWorkers {
			return errors.Errorf("epl: %d workers on %s: a machine runs at most %d, each of which is a process; use more machines, or workers with more devices",
				p.Count, p.Host, maxWorkers)
		}
		for i := range p.Count {
			d.hosts[p.First+i] = p.Host
		}
	}
	type made struct {
		at   int
		crew crew
		err  error
	}
	results := make(chan made)
	for i, p := range places {
		go func() {
			var c crew
			var err error
			if p.join != nil {
				c, err = p.join(ctx, p.spec, d.take)
			} else if p.here {
				c, err = prepare(ctx, p.spec, o.Environ, o.Self, d.take)
			} else {
				c, err = connect(ctx, p.spec, o.SSH, o.Self, d.take)
			}
			results <- made{i, c, err}
		}()
	}
	crews := make([]crew, len(places))
	var failed error
	for range places {
		if r := <-results; r.err == nil {
			crews[r.at] = r.crew
		} else if failed == nil {
			failed = r.err
		}
	}
	if failed == nil {
		d.crews = crews
		return nil
	}
	for _, c := range crews {
		if c != nil {
			c.finish()
		}
	}
	return failed
}
