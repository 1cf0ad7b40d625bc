// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
)

// With cluster.measure the plans of all workers name the same links, which were measured, and weights stay the same bits.
func TestPlansNameTheLinksThatWereMeasured(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 2, hosts: "a,b"}, {num: 2, devices: 1}} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			w.agree(t, "measured links")
		})
	}
}

var linksLine = regexp.MustCompile(`links were measured at the start \(cluster\.measure\):( \S+ and \S+ GB/s between (devices of a worker|workers of a host|hosts),?)+`)

func init() {
	parts["measured links"] = func(w *part) error {
		m := Models()[1]
		var envs []*epl.Env // open as long as their weights are read
		defer func() {
			for _, env := range envs {
				env.Close()
			}
		}()
		explained := func(params map[string]any) (*Run, string, error) {
			env, err := w.init(params)
			if err != nil {
				return nil, "", err
			}
			envs = append(envs, env)
			got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
			if err != nil {
				return nil, "", err
			}
			var text strings.Builder
			err = env.Explain(&text)
			return got, strings.Join(strings.Fields(text.String()), " "), err // however lines are wrapped
		}
		plain, text, err := explained(nil)
		if err != nil || strings.Contains(text, "measured") {
			return fmt.Errorf("nothing was to be measured: %v\n%s", err, text)
		}
		got, text, err := explained(map[string]any{"cluster.measure": true})
		if err != nil {
			return err
		}
		line := linksLine.FindString(text)
		if line == "" || strings.Contains(line, "workers of a host") == strings.HasSuffix(line, "between hosts") {
			return fmt.Errorf("the plan does not name the links that were measured: %q\n%s", line, text)
		}
		fmt.Println(line)                                  // all workers have the same
		if strings.Contains(text, "model replicas take") { // the machine is busy, and its devices are not equally fast
			return CloseWeights(plain, got, 1e-5)
		}
		return SameBits(plain, got)
	}
}

func TestWhatMeasuresNothingSaysSo(t *testing.T) {
	t.Setenv(cost.EnvProfiles, t.TempDir())
	m := Models()[0]
	env := newCluster(t, 1, 1, map[string]any{"cluster.measure": true})
	if _, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := env.Explain(&text); err != nil || !strings.Contains(text.String(), "cluster.measure measured no links: there is one device") {
		t.Errorf("%v:\n%s", err, &text)
	}
}
