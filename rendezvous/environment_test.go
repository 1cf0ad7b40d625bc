// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/jobtest"
)

func TestTheEnvironmentDescribesTheJob(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct {
		env   map[string]string
		found bool
		want  string // in the error; empty: none
	}{
		{map[string]string{}, false, ""},
		{map[string]string{EnvURL: "  "}, false, ""},
		{map[string]string{EnvToken: token}, false, ""},
		{map[string]string{EnvURL: "tcp://a:1", EnvToken: token}, true, ""},
		{map[string]string{EnvURL: " first://a:1 ", EnvToken: token}, true, ""},
		{map[string]string{EnvURL: "tcp://[::1]:65535", EnvToken: token}, true, ""},
		{map[string]string{EnvURL: "file:///tmp/x"}, true, ""},
		{map[string]string{EnvURL: "file://0.0.0.0/tmp/x"}, true, ""},
		{map[string]string{EnvURL: "tcp://a:1"}, true, "EPL_TOKEN is not"},
		{map[string]string{EnvURL: "tcp://a:1", EnvToken: "short"}, true, "EPL_TOKEN has 5 characters"},
		{map[string]string{EnvURL: "tcp://a", EnvToken: token}, true, `EPL_RDZV="tcp://a": it needs a host and a port`},
		{map[string]string{EnvURL: "tcp://a:0", EnvToken: token}, true, "a port from 1 to 65535"},
		{map[string]string{EnvURL: "tcp://:5", EnvToken: token}, true, "needs a host"},
		{map[string]string{EnvURL: "tcp://a:99999", EnvToken: token}, true, "a port from 1 to 65535"},
		{map[string]string{EnvURL: "tcp://a:1/x", EnvToken: token}, true, "it has a path"},
		{map[string]string{EnvURL: "a:1", EnvToken: token}, true, "begins with none of these schemes"},
		{map[string]string{EnvURL: "etcd://a:1", EnvToken: token}, true, "expected tcp://host:port, first://host:port or file:///path"},
		{map[string]string{EnvURL: "tcp://a b", EnvToken: token}, true, "it is no URL"},
		{map[string]string{EnvURL: "file://tmp/x"}, true, "a file's host is nothing"},
		{map[string]string{EnvURL: "file:///"}, true, "it has no path"},
		{map[string]string{EnvURL: "file:///x", EnvTLSCert: "c", EnvTLSKey: "k"}, true, "EPL_TLS_CA is not set"},
		{map[string]string{EnvURL: "file:///x", EnvTLSCert: "/nowhere/c", EnvTLSKey: "/nowhere/k", EnvTLSCA: "/nowhere/a"}, true, "/nowhere/c"},
	} {
		j, found, err := FromEnvironment(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if found != c.found {
			t.Errorf("%v: found %v", c.env, found)
		}
		if c.want != "" {
			jobtest.WantError(t, err, c.want)
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", c.env, err)
		}
		if found && (j.URL != strings.TrimSpace(c.env[EnvURL]) || j.Security.Token != c.env[EnvToken] || j.Index != -1) {
			t.Errorf("%v: %+v", c.env, j)
		}
	}
}
