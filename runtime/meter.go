package runtime

import (
	"fmt"
	"sort"
	"strings"

	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"
)

// meter counts the bytes that live on a device, by what they are for.
type meter struct {
	device int
	limit  int64 // 0: none
	live   map[string]int64
	total  int64
	peak   int64
}

// What bytes are for.
const (
	forVariables = "variables"
	forInputs    = "inputs"
	forValues    = "values between segments"
	forTemporary = "temporaries of a segment"
	forMerging   = "gradients and results being merged"
)

func (m *meter) add(kind string, bytes int64) error {
	m.live[kind] += bytes
	m.total += bytes
	m.peak = max(m.peak, m.total)
	if m.limit > 0 && m.total > m.limit {
		return errors.Errorf("epl: device %d needs %s and has %s (cluster.device_memory): %s; "+
			"use a smaller micro-batch, or more devices", m.device, humanize.Bytes(m.total), humanize.Bytes(m.limit), m.account())
	}
	return nil
}

func (m *meter) sub(kind string, bytes int64) {
	m.live[kind] -= bytes
	m.total -= bytes
}

// account lists what lives, largest first.
func (m *meter) account() string {
	var kinds []string
	for k, n := range m.live {
		if n > 0 {
			kinds = append(kinds, k)
		}
	}
	sort.Slice(kinds, func(i, j int) bool {
		if m.live[kinds[i]] != m.live[kinds[j]] {
			return m.live[kinds[i]] > m.live[kinds[j]]
		}
		return kinds[i] < kinds[j]
	})
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%s %s", k, humanize.Bytes(m.live[k]))
	}
	return strings.Join(kinds, ", ")
}
