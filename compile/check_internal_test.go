// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"testing"
)

func TestWhoDiffersFromMostIsNamed(t *testing.T) {
	for _, c := range []struct {
		hashes    []int64
		odd, same []int
	}{
		{[]int64{7, 8, 7}, []int{11}, []int{10, 12}},
		{[]int64{7, 8}, []int{10, 11}, nil},
		{[]int64{7, 7, 8, 8}, []int{10, 11, 12, 13}, nil},
		{[]int64{7, 7, 8, 9}, []int{10, 11, 12, 13}, nil},
		{[]int64{7, 7, 8, 9, 7}, []int{12, 13}, []int{10, 11, 14}},
		{[]int64{7, absent, 7, 8}, []int{13}, []int{10, 12}},
	} {
		odd, same := split([]int{10, 11, 12, 13, 14}[:len(c.hashes)], c.hashes)
		if !slices.Equal(odd, c.odd) || !slices.Equal(same, c.same) {
			t.Errorf("%v: %v differ, %v agree", c.hashes, odd, same)
		}
	}
}
