// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

// Origin is one of the places that a value may come from. Its names are those that listings show.
type Origin int

// The places, in order of precedence: each wins over the ones before.
const (
	Default Origin = iota
	Environment
	Backend // FromBackend: GOMLX_BACKEND=epl:…
	Code
	Plan   // Config.With, which "epl plan --set" uses
	Pin    // Config.Pinned: a plan that is pinned
	Chosen // Config.Choose: auto.auto_parallel
)

// String returns "default", "environment", "GOMLX_BACKEND", "code", "epl plan --set", "the pinned plan" or "auto.auto_parallel".
func (o Origin) String() string {
	switch o {
	case Environment:
		return "environment"
	case Backend:
		return "GOMLX_BACKEND"
	case Code:
		return "code"
	case Plan:
		return "epl plan --set"
	case Pin:
		return "the pinned plan"
	case Chosen:
		return "auto.auto_parallel"
	default:
		return "default"
	}
}

// MarshalText makes JSON show the name.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Source says where a value came from.
type Source struct {
	Origin   Origin `json:"origin"`
	Variable string `json:"variable,omitempty"` // the environment variable, where Origin is Environment
}

// String returns that of the origin, with the name of an environment variable.
func (s Source) String() string {
	if s.Origin == Environment {
		return s.Origin.String() + " " + s.Variable
	}
	return s.Origin.String()
}

// Source returns where the value of a key came from. A field that was changed since [New] came from code.
func (c *Config) Source(key string) (Source, error) {
	k, err := lookup(key)
	if err != nil {
		return Source{}, err
	}
	return c.source(k), nil
}

func (c *Config) source(k *key) Source {
	value := k.get(c)
	resolved, ok := c.origins[k.name]
	switch {
	case ok && value == resolved.value:
		return resolved.source
	case !ok && value == k.def: // only where New did not build c
		return Source{}
	}
	return Source{Origin: Code}
}
