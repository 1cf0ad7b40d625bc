package local

import (
	"fmt"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Devices of one worker that can copy from each other hand values of stages over without the host.

// handovers are values on their way between devices of this worker, in one step.
type handovers struct {
	mu      sync.Mutex
	on      map[handover]chan compute.Buffer
	stopped chan struct{} // a device has failed
	once    sync.Once
}

// handover is one of them.
type handover struct{ transfer, micro, from, to int }

func newHandovers() *handovers {
	return &handovers{on: map[handover]chan compute.Buffer{}, stopped: make(chan struct{})}
}

func (h *handovers) at(x handover) chan compute.Buffer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on[x] == nil {
		h.on[x] = make(chan compute.Buffer, 1)
	}
	return h.on[x]
}

// stop lets who waits return.
func (h *handovers) stop() { h.once.Do(func() { close(h.stopped) }) }

// letGo frees what nobody took.
func (h *handovers) letGo() {
	for _, c := range h.on {
		select {
		case b := <-c:
			_ = b.Finalize()
		default:
		}
	}
}

// hands tells whether a leg of a transfer is handed over: both devices are of this worker, and what the one has is what the other gets.
func (r *run) hands(t schedule.Transfer, x leg) bool {
	from, to := seat{r.replica, t.From, x.from}, seat{r.replica, t.To, x.to}
	for _, s := range []seat{from, to} {
		local := r.rank(s) - r.stepper.first
		if local < 0 || local >= len(r.devices) {
			return false
		}
		if _, ok := r.devices[local].backend.(exec.Neighbor); !ok {
			return false
		}
	}
	return x.within(t.Value, from.at(), t.Value.LocalShape(from.at())) == nil && x.within(t.Into, to.at(), t.Into.LocalShape(to.at())) == nil
}

// handOver gives a value to another device of this worker. It does not wait.
func (r *run) handOver(in schedule.Instr, v *ir.Value, to int) error {
	h, err := r.value(r.slot(v, in.Micro))
	if err != nil {
		return err
	}
	start := time.Now()
	b, err := r.devices[to-r.stepper.first].backend.(exec.Neighbor).CopyFrom(h.Buffer)
	if err != nil {
		return err
	}
	r.handed.at(handover{in.Transfer, in.Micro, r.id, to}) <- b
	r.did(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Name: fmt.Sprintf("%s to device %d", v, to), Start: start, Bytes: h.bytes,
		Flow: r.flow(in.Transfer, in.Micro, r.id, to)})
	return nil
}

// takeOver takes a value that another device of this worker gives.
func (r *run) takeOver(in schedule.Instr, from int) (compute.Buffer, error) {
	t := r.schedule.Transfers[in.Transfer]
	start := time.Now()
	select {
	case b := <-r.handed.at(handover{in.Transfer, in.Micro, from, r.id}):
		r.received(t.Value, from, start, bytesOf(b), r.flow(in.Transfer, in.Micro, from, r.id))
		return b, nil
	case <-r.handed.stopped:
		return nil, errors.WithStack(errHandover)
	}
}

// errHandover is for who waited for a device that failed: that one says why.
var errHandover = errors.New("epl: another device of this worker has stopped")
