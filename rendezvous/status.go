// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"encoding/json"
	"time"
)

// statusFields are those of a status that mean the same everywhere.
type statusFields WorkerStatus

// travelling is a status on its way to another machine, whose clock differs: times are durations until now, in milliseconds.
type travelling struct {
	statusFields
	Since, Seen, Stepped *int64 `json:",omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (w WorkerStatus) MarshalJSON() ([]byte, error) {
	age := func(at time.Time) *int64 {
		if at.IsZero() {
			return nil
		}
		ms := time.Since(at).Milliseconds()
		return &ms
	}
	return json.Marshal(travelling{statusFields: statusFields(w), Since: age(w.Since), Seen: age(w.Seen), Stepped: age(w.Stepped)})
}

// UnmarshalJSON implements json.Unmarshaler: times are by the clock of who reads.
func (w *WorkerStatus) UnmarshalJSON(text []byte) error {
	var t travelling
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	now := time.Now()
	at := func(age *int64) time.Time {
		if age == nil {
			return time.Time{}
		}
		return now.Add(-time.Duration(*age) * time.Millisecond)
	}
	*w = WorkerStatus(t.statusFields)
	w.Since, w.Seen, w.Stepped = at(t.Since), at(t.Seen), at(t.Stepped)
	return nil
}
