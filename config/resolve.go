// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"strings"
)

// variablePrefix starts the name of every environment variable of EPL.
const variablePrefix = "EPL_"

// New resolves every key from params, else from the environment, else from its default. It takes keys
// "category.attribute" and values of any Go type that makes sense for the key: numbers of any numeric type, bools,
// strings as in the environment, a time.Duration, a [LossScale], a list of device indices as []int. Words are
// accepted in any case and stored as documented.
//
// The error lists every problem at once, sorted, a line each: unknown keys and unknown variables
// EPL_<CATEGORY>_<ATTRIBUTE> of a known category, values that are not allowed, and values that contradict others or
// could have no effect. Other variables that start with EPL_ are not configuration. A variable that is empty counts
// as not set; one that params overrides is not read.
func New(params map[string]any) (*Config, error) {
	return resolve(params, os.Environ())
}

// FromBackend is New for settings of GOMLX_BACKEND=epl:…, which win over variables of their own.
func FromBackend(settings map[string]string) (*Config, error) {
	params := make(map[string]any, len(settings))
	for name, value := range settings {
		params[name] = value
	}
	return resolveFrom(Backend, params, os.Environ())
}

// resolve is New for a given environment, in the form of os.Environ.
func resolve(params map[string]any, environ []string) (*Config, error) {
	return resolveFrom(Code, params, environ)
}

func resolveFrom(origin Origin, params map[string]any, environ []string) (*Config, error) {
	var ps problems
	for name := range params {
		if _, err := lookup(name); err != nil {
			ps.add(err)
		}
	}
	variables := make(map[string]string)
	for _, setting := range environ {
		name, value, _ := strings.Cut(setting, "=")
		if value == "" {
			continue
		}
		if err := checkVariable(name); err != nil {
			ps.add(err)
		}
		variables[name] = value
	}

	return build(&ps, func(k *key) (any, Source) { return k.def, Source{} },
		func(k *key) (any, Source) { return k.given(origin, params, variables) })
}

// With is the configuration with other settings, each "key=value". They win over all others; where they come from is
// "epl plan --set".
func (c *Config) With(list []string) (*Config, error) { return c.with(list, Plan) }

// Choose is With for what EPL chose by itself: auto.auto_parallel.
func (c *Config) Choose(list []string) (*Config, error) { return c.with(list, Chosen) }

func (c *Config) with(list []string, by Origin) (*Config, error) {
	var ps problems
	settings := map[string]any{}
	for _, s := range list {
		name, value, _ := strings.Cut(s, "=")
		settings[name] = value
		if _, err := lookup(name); err != nil {
			ps.add(err)
		}
	}
	return build(&ps, func(k *key) (any, Source) { return k.get(c), c.source(k) }, func(k *key) (any, Source) {
		if v, ok := settings[k.name]; ok {
			return v, Source{Origin: by}
		}
		return nil, Source{}
	})
}

// Pinned is the configuration with the settings of a plan, which win over all others: what they leave at its default was not asked
// for.
func (c *Config) Pinned(settings map[string]string) (*Config, error) {
	var ps problems
	for name := range settings {
		if _, err := lookup(name); err != nil {
			ps.add(err)
		}
	}
	return build(&ps, func(k *key) (any, Source) {
		if _, ok := settings[k.name]; ok {
			return k.def, Source{}
		}
		return k.get(c), c.source(k)
	}, func(k *key) (any, Source) {
		if v, ok := settings[k.name]; ok && v != k.typ.format(k.def) {
			return v, Source{Origin: Pin}
		}
		return nil, Source{}
	})
}

// Of has the given settings, and else defaults, whatever the environment says.
func Of(settings map[string]string) (*Config, error) {
	c, err := resolve(nil, nil)
	if err != nil {
		return nil, err
	}
	return c.Pinned(settings)
}

// build makes a configuration of what is given for keys, if anything, and of what they have without.
func build(ps *problems, without, given func(*key) (any, Source)) (*Config, error) {
	c := &Config{origins: make(map[string]origin, len(keys))}
	refused := make(map[string]bool)
	for i := range keys {
		k := &keys[i]
		value, source := without(k)
		if given, from := given(k); from.Origin != Default {
			canonical, ok := k.typ.convert(given)
			if ok {
				value, source = canonical, from
			} else {
				refused[k.name] = true
				ps.add(k.refuse(given, from))
			}
		}
		k.set(c, value)
		c.origins[k.name] = origin{value, source}
	}
	ps.add(c.conflicts(refused)...)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// given returns what the user gave for the key, if anything, and where.
func (k *key) given(origin Origin, params map[string]any, variables map[string]string) (any, Source) {
	if v, ok := params[k.name]; ok {
		return v, Source{Origin: origin}
	}
	if v, ok := variables[k.variable()]; ok {
		return v, Source{Origin: Environment, Variable: k.variable()}
	}
	return nil, Source{}
}

// checkVariable refuses a variable that has the form of a key's, with a known category, but is no key's.
func checkVariable(name string) error {
	rest, ok := strings.CutPrefix(name, variablePrefix)
	if !ok {
		return nil
	}
	var misspelt string // the key that the variable would set
	for i := range keys {
		if keys[i].variable() == name {
			return nil
		}
		category := keys[i].category()
		if attribute, ok := strings.CutPrefix(rest, strings.ToUpper(category)+"_"); ok {
			misspelt = category + "." + strings.ToLower(attribute)
		}
	}
	if misspelt == "" {
		return nil
	}
	return unknownVariable(name, misspelt)
}
