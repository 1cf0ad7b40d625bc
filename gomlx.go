package epl

import (
	"log"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/record"
)

// A program that imports EPL can choose it as any other backend of GoMLX: GOMLX_BACKEND=epl:devices=2,inner=go.
func init() { compute.Register("epl", newRegistered) }

// Of returns the Env behind a backend: that of [Init], or of one that GoMLX made for GOMLX_BACKEND=epl:OPTIONS. It is nil
// for backends that are not EPL's. OPTIONS are separated by commas:
//
//   - devices=N sets the devices of this worker, as [WithLocalDevices] does;
//   - inner=NAME chooses what programs run on, as [WithInner] does. It is the last one: all that follows belongs to it.
//
// Configuration keys are taken from the EPL_* variables of the environment. Finalizing the backend closes the Env.
//
//	backend := compute.MustNew() // GOMLX_BACKEND=epl:devices=2
//	if env := epl.Of(backend); env != nil {
//		ds = env.Dataset(ds)
//	}
func Of(b compute.Backend) *Env {
	r, ok := b.(*record.Backend)
	if !ok {
		return nil
	}
	env, _ := r.Owner.(*Env)
	return env
}

// newRegistered makes a backend for GoMLX's registry.
func newRegistered(text string) (compute.Backend, error) {
	opts, err := registeredOptions(text)
	if err != nil {
		return nil, err
	}
	env, err := Init(nil, opts...)
	if err != nil {
		return nil, err
	}
	env.backend.Finally = func() { // nobody has the Env to close it
		if env.job != nil {
			if err := env.job.Leave(); err != nil {
				log.Printf("%v", err)
			}
		}
		env.left()
	}
	return env.backend, nil
}

// registeredOptions reads what follows "epl:".
func registeredOptions(text string) ([]Option, error) {
	inner := "cpu" // not GOMLX_BACKEND, which is EPL here
	var opts []Option
	for rest := text; rest != ""; {
		if name, ok := strings.CutPrefix(rest, "inner="); ok {
			if name == "" {
				return nil, optionError(text, "inner= names no backend: write inner=go, or leave it out")
			}
			inner = name
			break
		}
		var option string
		option, rest, _ = strings.Cut(rest, ",")
		name, value, _ := strings.Cut(option, "=")
		if name != "devices" {
			return nil, optionError(text, "there is no option "+strconv.Quote(option)+"; use devices=N and, as the last one, inner=NAME")
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return nil, optionError(text, "devices is a number from 1, not "+strconv.Quote(value))
		}
		opts = append(opts, WithLocalDevices(n))
	}
	return append(opts, WithInner(inner)), nil
}

func optionError(text, what string) error {
	return errors.Errorf("epl: %s=epl:%s: %s", compute.ConfigEnvVar, text, what)
}
