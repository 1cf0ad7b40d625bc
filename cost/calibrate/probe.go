package calibrate

import (
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
)

// Probe tells how fast the machine is now. A virtual machine that shares its processor with others is not always as fast.
type Probe struct {
	e       *engines
	product program
}

// NewProbe makes a probe, which takes some memory until it is closed.
func NewProbe(inner string) (*Probe, error) {
	e, err := newEngines(Options{Inner: inner, Each: 10 * time.Millisecond}, 1, usable())
	if err != nil {
		return nil, err
	}
	return &Probe{e, dots("float32", 256)[0]}, nil
}

// Speed is that of products while all cores compute some, relative to what a profile of this machine says. It takes about 10 ms.
func (x *Probe) Speed(p *cost.Profile) (float64, error) {
	s, err := x.e.time(x.product.text)
	if err != nil {
		return 0, err
	}
	return x.product.work / s / p.Rate(cost.Dot, dtypes.Float32, x.product.size), nil
}

// Close frees what the probe took.
func (x *Probe) Close() { x.e.close() }
