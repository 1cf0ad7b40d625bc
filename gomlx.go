// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"log"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/record"
)

// A program that imports EPL can choose it as any other backend of GoMLX: GOMLX_BACKEND=epl:devices=2,inner=go. The package epl/default makes
// it the one that is chosen where nothing else is.
func init() { compute.Register("epl", newRegistered) }

// Of returns the Env behind a backend: that of [Init], or of one that GoMLX made for GOMLX_BACKEND=epl:OPTIONS. It is nil
// for backends that are not EPL's. OPTIONS are name=value, separated by commas, each once:
//
//   - devices=N sets the devices of this worker, as [WithLocalDevices] does;
//   - a configuration key, such as pipeline.num_micro_batch=4, wins over its EPL_* variable in the environment;
//   - inner=NAME chooses what programs run on, as [WithInner] does. It is the last one: all that follows belongs to it.
//
// A comma that no name= follows belongs to the value before it: cluster.run_visible_devices=0,2 is one option. Finalizing the backend closes the Env.
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
	cfg, opts, err := registeredOptions(text)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: %s=epl:%s", compute.ConfigEnvVar, text)
	}
	env, err := Init(cfg, opts...)
	if err != nil {
		return nil, err
	}
	env.backend.Finally = func() { // a program that does not know EPL has no Env to close
		if err := env.leave(); err != nil {
			log.Printf("%v", err)
		}
	}
	return env.backend, nil
}

// nextOption is where a value ends.
var nextOption = regexp.MustCompile(`,[a-z_0-9.]+=`)

// registeredOptions reads what follows "epl:".
func registeredOptions(text string) (*Config, []Option, error) {
	given := map[string]string{}
	for rest := text; rest != ""; {
		name, value, ok := strings.Cut(rest, "=")
		rest = ""
		if end := nextOption.FindStringIndex(value); end != nil && name != "inner" {
			value, rest = value[:end[0]], value[end[0]+1:]
		}
		_, twice := given[name]
		switch {
		case !ok:
			return nil, nil, errors.Errorf("%q is no option; options are name=value, separated by commas", name)
		case name != "devices" && name != "inner" && !strings.Contains(name, "."):
			return nil, nil, errors.Errorf("there is no option %q; use devices=N, configuration keys such as pipeline.num_micro_batch=4 and, as the last one, inner=NAME", name)
		case twice:
			return nil, nil, errors.Errorf("%s is given twice", name)
		case value == "":
			return nil, nil, errors.Errorf("%s= has no value: write one, or leave it out", name)
		}
		given[name] = value
	}
	opts := []Option{WithInner("cpu")} // not GOMLX_BACKEND, which is EPL here
	if inner, ok := given["inner"]; ok {
		opts = []Option{WithInner(inner)}
	}
	if devices, ok := given["devices"]; ok {
		n, err := strconv.Atoi(devices)
		if err != nil || n < 1 {
			return nil, nil, errors.Errorf("devices is a number from 1, not %q", devices)
		}
		opts = append(opts, WithLocalDevices(n))
	}
	maps.DeleteFunc(given, func(name, _ string) bool { return slices.Contains([]string{"devices", "inner"}, name) })
	cfg, err := config.FromBackend(given)
	return cfg, opts, err
}
