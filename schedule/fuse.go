// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// fuse groups merges into at most splits buckets of their dtype. It keeps their order and never mixes dtypes: a bucket is
// closed as soon as it holds its share of the bytes, or a large merge where there are enough buckets for these.
func fuse(merges []*ir.Op, splits map[dtypes.DType]int) [][]*ir.Op {
	total := map[dtypes.DType]int64{}
	for _, m := range merges {
		total[dtypeOf(m)] += weightOf(m)
	}
	isLarge := func(m *ir.Op) bool { return 2*weightOf(m)*int64(splits[dtypeOf(m)]) >= total[dtypeOf(m)] }
	alone := enoughForLarge(merges, splits, total, isLarge)
	var groups [][]*ir.Op
	open := map[dtypes.DType]int{} // index of the group that is being filled
	filled := map[dtypes.DType]int64{}
	for _, m := range merges {
		d := dtypeOf(m)
		i, ok := open[d]
		if !ok {
			i = len(groups)
			groups = append(groups, nil)
			open[d] = i
		}
		groups[i] = append(groups[i], m)
		filled[d] += weightOf(m)
		if full := filled[d]*int64(max(splits[d], 1)) >= total[d]; alone[d] && isLarge(m) || !alone[d] && full {
			delete(open, d)
			filled[d] = 0
		}
	}
	return groups
}

// enoughForLarge tells of which dtypes there is a bucket for each large merge, and for what follows the last: the others are so few bytes that they go with the next large one.
func enoughForLarge(merges []*ir.Op, splits map[dtypes.DType]int, total map[dtypes.DType]int64, isLarge func(*ir.Op) bool) map[dtypes.DType]bool {
	need, small, ends := map[dtypes.DType]int{}, map[dtypes.DType]int64{}, map[dtypes.DType]bool{}
	for _, m := range merges {
		d := dtypeOf(m)
		if ends[d] = isLarge(m); ends[d] {
			need[d]++
		} else {
			small[d] += weightOf(m)
		}
	}
	enough := map[dtypes.DType]bool{}
	for d, n := range need {
		if !ends[d] {
			n++
		}
		enough[d] = n <= splits[d] && 2*small[d]*int64(splits[d]) < total[d]
	}
	return enough
}

// fuseRegions groups merges into at most splits buckets of their dtype, each of some regions: those whose middle lies in the same share of the
// bytes. Merges are in the order of their regions.
func fuseRegions(merges []*ir.Op, splits map[dtypes.DType]int, region func(merge *ir.Op) int) (groups [][]*ir.Op) {
	type unit struct {
		dtype  dtypes.DType
		region int
	}
	total, bytes := map[dtypes.DType]int64{}, map[unit]int64{}
	for _, m := range merges {
		total[dtypeOf(m)] += weightOf(m)
		bytes[unit{dtypeOf(m), region(m)}] += weightOf(m)
	}
	type bucket struct {
		dtype dtypes.DType
		share int64
	}
	at, open := map[bucket]int{}, map[unit]int{}
	before := map[dtypes.DType]int64{}
	for _, m := range merges {
		u := unit{dtypeOf(m), region(m)}
		i, known := open[u]
		if !known {
			key := bucket{u.dtype, (2*before[u.dtype] + bytes[u]) * int64(max(splits[u.dtype], 1)) / (2 * total[u.dtype])}
			before[u.dtype] += bytes[u]
			if i, known = at[key]; !known {
				i = len(groups)
				at[key], groups = i, append(groups, nil)
			}
			open[u] = i
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}

func dtypeOf(merge *ir.Op) dtypes.DType { return merge.Inputs[0].Shape.DType }

// weightOf is the bytes of a merge, which something empty has, too: it needs a bucket.
func weightOf(merge *ir.Op) int64 { return max(merge.Inputs[0].Bytes(), 1) }

// share divides the buckets of each dtype over families of merges, which cannot be in one bucket: at least one for each, and
// the next always for the family with the most bytes in a bucket, until there are as many as wanted.
func share(families [][]*ir.Op, maxSplits, wanted int) ([]map[dtypes.DType]int, error) {
	splits := make([]map[dtypes.DType]int, len(families))
	counts, bytes := make([]map[dtypes.DType]int, len(families)), make([]map[dtypes.DType]int64, len(families))
	left := map[dtypes.DType]int{}
	var kinds []dtypes.DType // in the order of the program, so that all workers find the same
	for i, merges := range families {
		splits[i], counts[i], bytes[i] = map[dtypes.DType]int{}, map[dtypes.DType]int{}, map[dtypes.DType]int64{}
		for _, m := range merges {
			d := dtypeOf(m)
			if _, known := left[d]; !known {
				left[d] = maxSplits
				kinds = append(kinds, d)
			}
			if splits[i][d] == 0 {
				splits[i][d] = 1
				left[d]--
			}
			counts[i][d]++
			bytes[i][d] += weightOf(m)
		}
	}
	for _, d := range kinds {
		if left[d] < 0 {
			return nil, errors.Errorf("epl: communication.max_splits = %d: gradients of %s need %d buckets, because some are all-reduced and some "+
				"reduce-scattered, or some by mean and some by sum; set it to %d or more", maxSplits, strings.ToLower(d.String()), maxSplits-left[d], maxSplits-left[d])
		}
		for left[d] = min(left[d], wanted-(maxSplits-left[d])); left[d] > 0; left[d]-- {
			best := -1
			for i := range families {
				if splits[i][d] < counts[i][d] && (best < 0 || bytes[i][d]*int64(splits[best][d]) > bytes[best][d]*int64(splits[i][d])) {
					best = i
				}
			}
			if best < 0 {
				break // each has a bucket of its own
			}
			splits[best][d]++
		}
	}
	return splits, nil
}
