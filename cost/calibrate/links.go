package calibrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// Transports are what connects devices: those of a worker, workers of a host, hosts.
var Transports = []string{"in-process", "shared-memory", "tcp"}

// links measures what connects two devices.
func links(p *cost.Profile, o Options) error {
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
		l, err := measureLink(ends, o.Each)
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

// measureLink is the link by which an all-reduce of two takes as long as it does: two rounds, and, for the two that share it, twice the bytes.
func measureLink(ends [2]*comm.Communicator, each time.Duration) (l cost.Link, err error) {
	const large = 8 << 20
	small, err := allReduce(ends, 4, each)
	if err != nil {
		return l, err
	}
	whole, err := allReduce(ends, large, each)
	if err != nil {
		return l, err
	}
	s := max(whole-small, whole/4, time.Microsecond).Seconds()
	return cost.Link{Latency: max(small/2, 1), Bandwidth: significant(2 * large / s), Shared: true}, nil
}

// allReduce is how long it takes.
func allReduce(ends [2]*comm.Communicator, bytes int, each time.Duration) (time.Duration, error) {
	// Both have to do the same number of calls.
	one, err := allReduces(ends, bytes, 3)
	if err != nil {
		return 0, err
	}
	all, err := allReduces(ends, bytes, min(max(int(each/max(fast(one), 1)), 3), 10000))
	if err != nil {
		return 0, err
	}
	return fast(all), nil
}

func allReduces(ends [2]*comm.Communicator, bytes, times int) ([]time.Duration, error) {
	took := make([]time.Duration, times)
	var failed [2]error
	var done sync.WaitGroup
	for i, end := range ends {
		done.Go(func() {
			buffer := make([]float32, bytes/4)
			for n := range times {
				start := time.Now()
				if failed[i] = end.AllReduce(buffer, comm.Sum); failed[i] != nil {
					return
				}
				if i == 0 {
					took[n] = time.Since(start)
				}
			}
		})
	}
	done.Wait()
	return took, errors.WithStack(firstOf(failed))
}

func firstOf(all [2]error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
