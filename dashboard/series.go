// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import "slices"

// mostPoints is how many points a curve has at most. Those of a long training are means of several records.
const mostPoints = 1024

// point is a part of a curve: step and time of its last record, and the mean, the least and the largest value of all of them.
type point struct {
	step           int64
	time           int64
	mean, min, max float64
	n              int // records
}

func (p *point) add(q point) {
	total := float64(p.n + q.n)
	p.mean = p.mean*(float64(p.n)/total) + q.mean*(float64(q.n)/total)
	if q.min < p.min || q.min != q.min {
		p.min = q.min
	}
	if q.max > p.max || q.max != q.max {
		p.max = q.max
	}
	p.step, p.time, p.n = q.step, q.time, p.n+q.n
}

// series is a curve. When it is full, every two points become one, and from then on a point takes twice as many records.
type series struct {
	points []point
	stride int // records of a point
}

// add takes a record. A step that was there before, because training went on from a checkpoint, replaces what came after it.
func (s *series) add(step, time int64, value float64) {
	s.cut(step)
	p := point{step, time, value, value, value, 1}
	if last := len(s.points) - 1; last >= 0 && s.points[last].n < s.stride {
		s.points[last].add(p)
		return
	}
	s.points = append(s.points, p)
	if len(s.points) < mostPoints {
		return
	}
	half := s.points[:0]
	for i := 0; i+1 < mostPoints; i += 2 {
		p := s.points[i]
		p.add(s.points[i+1])
		half = append(half, p)
	}
	s.points, s.stride = half, max(2*s.stride, 2)
}

// cut forgets what is known of a step, and of those after it.
func (s *series) cut(step int64) {
	at, _ := slices.BinarySearchFunc(s.points, step, func(p point, step int64) int {
		if p.step < step {
			return -1
		}
		return 1
	})
	s.points = s.points[:at]
}

// curve is a series as the page gets it: steps, times, means, least and largest values.
type curve struct {
	Steps []int64  `json:"steps"`
	Times []int64  `json:"times"`
	Means []Number `json:"means"`
	Mins  []Number `json:"mins"`
	Maxs  []Number `json:"maxs"`
}

func (s *series) curve() curve {
	c := curve{Steps: []int64{}, Times: []int64{}, Means: []Number{}, Mins: []Number{}, Maxs: []Number{}}
	for _, p := range s.points {
		c.Steps, c.Times = append(c.Steps, p.step), append(c.Times, p.time)
		c.Means, c.Mins, c.Maxs = append(c.Means, Number(p.mean)), append(c.Mins, Number(p.min)), append(c.Maxs, Number(p.max))
	}
	return c
}
