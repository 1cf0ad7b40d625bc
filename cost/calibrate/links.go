// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cost/links"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// Transports are what connects devices: those of a worker, workers of a host, hosts.
var Transports = []string{"in-process", "shared-memory", "tcp"}

// connections measures what connects two devices.
func connections(p *cost.Profile, o Options) error {
	for _, name := range o.Transports {
		if !slices.Contains(Transports, name) {
			return errors.Errorf("epl: there is no transport %q; use %s", name, strings.Join(Transports, ", "))
		}
	}
	for i, name := range Transports {
		if o.Transports != nil && !slices.Contains(o.Transports, name) {
			continue
		}
		o.Progress("transport " + name)
		ends, leave, err := connect(name)
		if err != nil {
			return errors.WithMessagef(err, "epl: transport %s", name)
		}
		l, err := measureLink(ends, o)
		leave()
		if err != nil {
			return errors.WithMessagef(err, "epl: transport %s", name)
		}
		switch i {
		case 0:
			p.Within = &l
		case 1:
			p.Inside = &l
		case 2:
			l.Bandwidth /= 2 // one device of each host: nobody shares it
			p.Between = &l
		}
	}
	return nil
}

// connect makes the two ends of a transport.
func connect(name string) (ends [2]*comm.Communicator, leave func(), err error) {
	if name == Transports[0] {
		w, err := comm.NewInProcess(2, comm.Options{})
		if err != nil {
			return ends, nil, err
		}
		for i := range ends {
			if ends[i], err = w.All().Communicator(i, 0); err != nil {
				return ends, nil, err
			}
		}
		return ends, func() { _ = w.Close() }, nil
	}
	security := wire.Security{Token: wire.NewToken()}
	server, err := rendezvous.NewServer("127.0.0.1:0", rendezvous.ServerOptions{Workers: 2, Security: security})
	if err != nil {
		return ends, nil, err
	}
	var leaves []func()
	leave = func() {
		for _, f := range leaves {
			f()
		}
		_ = server.Close()
	}
	var failed [2]error
	var mu sync.Mutex
	var joined sync.WaitGroup
	for i := range ends {
		joined.Go(func() {
			var end func()
			ends[i], end, failed[i] = join(server.Addr().String(), security, i, name)
			mu.Lock()
			defer mu.Unlock()
			if end != nil {
				leaves = append(leaves, end)
			}
		})
	}
	joined.Wait()
	for _, err := range failed {
		if err != nil {
			leave()
			return ends, nil, err
		}
	}
	return ends, leave, nil
}

// join makes one of two workers.
func join(address string, security wire.Security, index int, name string) (*comm.Communicator, func(), error) {
	member, err := rendezvous.Join(context.Background(), rendezvous.Options{URL: "tcp://" + address, Security: security, Workers: 2, Index: index})
	if err != nil {
		return nil, nil, err
	}
	layout := comm.Layout{Worker: index}
	for i := range 2 {
		host := "one"
		if name == Transports[2] {
			host = fmt.Sprint(i)
		}
		layout.Workers = append(layout.Workers, comm.Place{Ranks: 1, Host: host})
	}
	world, err := comm.New(layout, mesh{member}, comm.Options{})
	if err != nil {
		_ = member.Leave()
		return nil, nil, err
	}
	leave := func() {
		_ = world.Close()
		_ = member.Leave()
	}
	end, err := world.All().Communicator(index, 0)
	return end, leave, err
}

// mesh is a member whose workers are never busy.
type mesh struct{ *rendezvous.Member }

func (mesh) Busy(int) (string, time.Time) { return "", time.Time{} }

func (m mesh) Health(worker int) comm.Health {
	return comm.Health{Name: m.Workers()[worker].String(), Seen: m.State(worker).Seen, Hub: m.Heard()}
}

func (mesh) Waiting() (string, []int) { return "", nil }

// measureLink is the link by which an all-reduce of two takes as long as it does. Its latency is what it takes two devices to meet that compute in between.
func measureLink(ends [2]*comm.Communicator, o Options) (l cost.Link, err error) {
	const large = 32 << 20 // as much as gradients have, so that no cache does
	var both [2]cost.Link
	var failed [2]error
	var done sync.WaitGroup
	for i, end := range ends {
		done.Go(func() { both[i], failed[i] = links.Measure(end, large, o.Each) })
	}
	done.Wait()
	if err := firstOf(failed); err != nil {
		return l, err
	}
	l = both[0]
	l.Bandwidth = significant(l.Bandwidth)
	if usable() > 1 { // else they do not compute at the same time
		met, err := meet(ends, o)
		if err != nil {
			return l, err
		}
		l.Latency = max(l.Latency, met)
	}
	return l, nil
}

// meet is how much longer it takes two devices to compute and to meet than to compute: they are never equally fast, and who comes first may sleep.
func meet(ends [2]*comm.Communicator, o Options) (time.Duration, error) {
	e, err := newEngines(o, 1, len(ends))
	if err != nil {
		return 0, err
	}
	defer e.close()
	const times = 100
	var runs [2]func() (time.Duration, error)
	for i := range runs {
		run, free, err := load(e.devices[i], products("float32", 256, 256, 256)) // a millisecond
		if err != nil {
			return 0, err
		}
		defer free()
		runs[i] = run
	}
	var computed, took [2][]time.Duration
	var failed [2]error
	var done sync.WaitGroup
	for i, end := range ends {
		done.Go(func() {
			value := make([]float32, 1)
			for n := range times + 1 {
				start := time.Now()
				d, err := runs[i]()
				if failed[i] = cmp.Or(end.AllReduce(value, comm.Sum), err); failed[i] != nil {
					return
				}
				if n > 0 { // the first waits until the other is ready
					computed[i], took[i] = append(computed[i], d), append(took[i], time.Since(start))
				}
			}
		})
	}
	done.Wait()
	if err := firstOf(failed); err != nil {
		return 0, errors.WithStack(err)
	}
	// A step has many meetings, so their mean counts, but for what a machine seldom does.
	mean := func(all [2][]time.Duration) (mean time.Duration) {
		both := slices.Concat(all[0], all[1])
		slices.Sort(both)
		both = both[:len(both)*9/10]
		for _, d := range both {
			mean += d / time.Duration(len(both))
		}
		return mean
	}
	return max(mean(took)-mean(computed), 0), nil
}

func firstOf(all [2]error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
