// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"reflect"
	"testing"

	"github.com/gomlx/compute"
)

func TestLinksOfEachKindAreMeasuredInPairs(t *testing.T) {
	for _, c := range []struct {
		devices []int
		hosts   []string
		want    []pairing
	}{
		{[]int{1}, []string{"a"}, nil},
		{[]int{3}, []string{"a"}, []pairing{{0, [][2]int{{0, 1}}}}},
		{[]int{1, 1}, []string{"a", "a"}, []pairing{{1, [][2]int{{0, 1}}}}},
		{[]int{1, 1}, []string{"a", "b"}, []pairing{{2, [][2]int{{0, 1}}}}},
		// Two devices of a worker and two workers on the first host; of the last of three hosts the link to the first.
		{[]int{1, 2, 1, 2}, []string{"a", "a", "b", "c"}, []pairing{
			{0, [][2]int{{1, 2}, {4, 5}}}, {1, [][2]int{{0, 1}}}, {2, [][2]int{{0, 3}}}, {2, [][2]int{{0, 4}}}}},
		// Workers of hosts in turn.
		{[]int{1, 1, 1, 1}, []string{"a", "b", "a", "b"}, []pairing{{1, [][2]int{{0, 2}, {1, 3}}}, {2, [][2]int{{0, 1}}}}},
	} {
		if got := pairs(c.devices, c.hosts); !reflect.DeepEqual(got, c.want) {
			t.Errorf("devices %v on %v: %v, want %v", c.devices, c.hosts, got, c.want)
		}
	}
}

func TestAWorkerAloneMeasuresTheLinkOfItsDevices(t *testing.T) {
	for n := range 3 {
		l, err := New(nil, make([]compute.Backend, n)...).Links()
		if err != nil || (l.Within != nil) != (n > 1) || l.Inside != nil || l.Between != nil {
			t.Errorf("%d devices: %+v, %v", n, l, err)
		}
		if l.Within != nil && (l.Within.Latency <= 0 || l.Within.Bandwidth <= 0) {
			t.Errorf("the link is %+v", *l.Within)
		}
	}
}
