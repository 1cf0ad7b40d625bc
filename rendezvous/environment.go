// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// The variables by which a worker learns where the others are, and how to prove that it belongs to them. A variable that
// is set to blanks counts as not set.
const (
	// EnvURL says where the workers meet: see the package comment.
	EnvURL = "EPL_RDZV"
	// EnvToken is the job's secret.
	EnvToken = "EPL_TOKEN"
	// EnvTLSCert, EnvTLSKey and EnvTLSCA name PEM files: the worker's certificate, its key, and the authority that
	// signed the certificates of all workers. All three are set, or none.
	EnvTLSCert = "EPL_TLS_CERT"
	EnvTLSKey  = "EPL_TLS_KEY"
	EnvTLSCA   = "EPL_TLS_CA"
)

// minToken is what a token must have to be no guess.
const minToken = 16

// FromEnvironment returns a job with its URL and Security, as the environment describes them, and Index -1. found is
// false where EPL_RDZV is not set. The environment is read through lookup: os.LookupEnv, unless in a test.
func FromEnvironment(lookup func(string) (string, bool)) (j Options, found bool, err error) {
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	j = Options{URL: get(EnvURL), Index: -1}
	if j.URL == "" {
		return Options{}, false, nil
	}
	place, err := parseURL(j.URL)
	if err != nil {
		return Options{}, true, err
	}
	j.Security.Token = get(EnvToken)
	if place.scheme != "file" {
		switch n := len(j.Security.Token); {
		case n == 0:
			return Options{}, true, errors.Errorf("epl: %s=%q is set, but %s is not; start the workers with epl-launch, "+
				"or give all of them the same token, from \"openssl rand -hex 32\"", EnvURL, j.URL, EnvToken)
		case n < minToken:
			return Options{}, true, errors.Errorf("epl: %s has %d characters, which can be guessed: expected at least %d; "+
				"take the output of \"openssl rand -hex 32\"", EnvToken, n, minToken)
		}
	}
	cert, key, authority := get(EnvTLSCert), get(EnvTLSKey), get(EnvTLSCA)
	if cert == "" && key == "" && authority == "" {
		return j, true, nil
	}
	for name, value := range map[string]string{EnvTLSCert: cert, EnvTLSKey: key, EnvTLSCA: authority} {
		if value == "" {
			return Options{}, true, errors.Errorf("epl: %s is not set, but others of %s, %s and %s are; set all three to files, or none",
				name, EnvTLSCert, EnvTLSKey, EnvTLSCA)
		}
	}
	if j.Security.TLS, err = wire.LoadTLS(cert, key, authority); err != nil {
		return Options{}, true, err
	}
	return j, true, nil
}
