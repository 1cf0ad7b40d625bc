// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

func TestAProfilerCollects(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Profile: func() []byte { return []byte("collected") }})
	p := f.Load(t)
	if !p.Profiles() {
		t.Fatal("the plugin has a profiler, and does not say so")
	}
	x := must[*pjrt.Profiler](t)(p.Profile([]byte{1}))
	if got := must[[]byte](t)(x.Stop()); !strings.HasPrefix(string(got), "collected") {
		t.Errorf("it collected %q", got)
	}
	if _, err := x.Stop(); err == nil {
		t.Error("a profiler stops twice")
	}
}

// What was made is freed, whatever fails: the fake would report it.
func TestAProfilerThatFails(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Profile: func() []byte { return nil }})
	p := f.Load(t)
	for _, at := range []string{"Create", "Start", "Stop", "CollectData"} {
		f.Fail("PLUGIN_Profiler_"+at, pjrt.Internal, "CUPTI is busy")
		x, err := p.Profile(nil)
		if err == nil {
			_, err = x.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), "CUPTI is busy") {
			t.Errorf("%s fails, and the error is %v", at, err)
		}
	}
}

func TestAPluginWithoutAProfiler(t *testing.T) {
	p := pjrttest.New(t, pjrttest.Options{}).Load(t)
	if _, err := p.Profile(nil); p.Profiles() || err == nil || !strings.Contains(err.Error(), "has no profiler") {
		t.Errorf("the error is %v", err)
	}
}
