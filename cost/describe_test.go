// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func described(t *testing.T, spec string) (*Cluster, error) {
	t.Helper()
	t.Setenv(EnvProfiles, t.TempDir())
	d, err := Describe(spec)
	if err != nil {
		return nil, err
	}
	return d.Cluster()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestClustersInAWord(t *testing.T) {
	for _, c := range []struct {
		spec           string
		devices, hosts int
		first, last    string
	}{
		{"8x8xV100-32", 64, 8, "V100-32", "V100-32"},
		{"1x8xV100-32+1x8xP100-16", 16, 2, "V100-32", "P100-16"},
		{"2x3", 6, 2, "flat", "flat"},
		{"4+2", 6, 2, "flat", "flat"},
		{"3", 3, 1, "flat", "flat"},
	} {
		got, err := described(t, c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		first, last := got.Devices[0], got.Devices[len(got.Devices)-1]
		if len(got.Devices) != c.devices || last.Host != c.hosts-1 || first.Profile.Name != c.first || last.Profile.Name != c.last {
			t.Errorf("%s: %d devices, the last %+v", c.spec, len(got.Devices), last)
		}
	}
}

func TestAMixedClusterOfAFile(t *testing.T) {
	c, err := described(t, file(t, `
profile: V100-32
between: {latency: 20us, bandwidth: 50Gb/s, shared: true}
workers:
- {devices: 2, host: a, speed: [2, 1]}
- {devices: 1, host: a, count: 2, memory: 8GiB}
- {devices: 2, host: b, profile: P100-16, speed: 0.5}
`))
	if err != nil {
		t.Fatal(err)
	}
	type device struct {
		name         string
		host, worker int
		speed        float64
		gib          int64
	}
	var got []device
	for _, d := range c.Devices {
		got = append(got, device{d.Profile.Name, d.Host, d.Worker, d.Speed, d.Profile.Memory >> 30})
	}
	want := []device{{"V100-32", 0, 0, 2, 32}, {"V100-32", 0, 0, 1, 32}, {"V100-32", 0, 1, 1, 8}, {"V100-32", 0, 2, 1, 8},
		{"P100-16", 1, 3, .5, 16}, {"P100-16", 1, 3, .5, 16}}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("%+v, not %+v", got, want)
		}
	}
	if got := c.Between.Bandwidth; got != 50e9/8 {
		t.Errorf("%g bytes per second between hosts", got)
	}
	if v, p := c.Link(0, 3).Bandwidth, c.Link(4, 5).Bandwidth; v != 130e9 || p != 10e9 {
		t.Errorf("%g inside the first host, %g inside the second", v, p)
	}
	if c.Memory() != 8<<30 {
		t.Errorf("the least memory is %d", c.Memory())
	}
}

func TestDevicesOfThisMachineShareItsMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvProfiles, dir)
	text := `{"name": "this", "memory": "24GiB", "cores": 2, "bandwidth": "10GB/s", "rates": {"dot": 1e11},
		"within": {"latency": "1us", "bandwidth": "20GB/s"}, "inside": {"latency": "2us", "bandwidth": "5GB/s"}}`
	if err := os.WriteFile(filepath.Join(dir, "this.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Describe(file(t, "profile: this\nworkers: [{host: a, devices: 2}, {host: a, devices: 1}, {host: b, devices: 2, memory: 1GiB}]"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []int64{8, 8, 8, 1, 1} {
		if got := c.Devices[rank].Profile.Memory >> 30; got != want {
			t.Errorf("device %d has %d GiB, not %d", rank, got, want)
		}
	}
	if a, b := c.Link(0, 1).Bandwidth, c.Link(1, 2).Bandwidth; a != 20e9 || b != 5e9 {
		t.Errorf("%g within a worker, %g inside a host", a, b)
	}
}

func TestClustersThatCannotBe(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(profile, []byte(`{"name": "p", "bandwidth": 1e9, "rates": {"dot": 1e9}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"8x8xB300":       "Known are A100-40",
		"0x8":            "such as 8x8",
		"2x-1xH100":      "such as 8x8",
		"8x8x":           "such as 8x8",
		"1x2x" + profile: "does not say how much memory",
		file(t, "workers: [{devices: 1, memory: -1GiB}]"):                            "no size of memory",
		file(t, "workers: [{devices: 1, speed: -2}]"):                                "a speed of -2",
		file(t, "workers: [{devices: 3, speed: [2, 1]}]"):                            "3 devices and 2 speeds",
		file(t, "workers: [{devices: -3}]"):                                          "no devices",
		file(t, "workers: [{devices: 2, count: -3}]"):                                "no devices",
		file(t, "workers: []"):                                                       "at least one worker",
		file(t, "between: {latency: -3us, bandwidth: 1e9}\nworkers: [{devices: 1}]"): "not negative",
		file(t, "between: {latency: 3us, bandwidth: -1e9}\nworkers: [{devices: 1}]"): "more than 0",
		file(t, "workers: [{devices: 1048576}, {devices: 1}]"):                       "more than",
	} {
		if _, err := described(t, spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not say %q", spec, err, want)
		}
	}
}
