// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
)

// Amounts as files write them: with a unit, or as a number of bytes, bytes per second or nanoseconds.
type (
	bytesText int64   // "32GiB"
	speedText float64 // "12.5GB/s", "50Gb/s"
	timeText  time.Duration
)

// Significant rounds a number to so many digits that mean something.
func Significant(x float64, digits int) float64 {
	if x == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-float64(digits-1))
	return math.Round(x/unit) * unit
}

// text is what a JSON string says, or the text of a number.
func text(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) == nil {
		return strings.TrimSpace(s)
	}
	return string(b)
}

func (x *bytesText) UnmarshalJSON(b []byte) error {
	n, ok := config.ParseBytes(text(b))
	if !ok {
		return errors.Errorf("%s is no size of memory: write a number of bytes, such as 32GiB", b)
	}
	*x = bytesText(n)
	return nil
}

func (x bytesText) MarshalJSON() ([]byte, error) { return json.Marshal(config.FormatBytes(int64(x))) }

func (x *speedText) UnmarshalJSON(b []byte) error {
	s, per := strings.CutSuffix(text(b), "/s")
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && per {
		bits, unit := 1.0, s
		if strings.HasSuffix(s, "b") && !strings.HasSuffix(s, "B") {
			bits, unit = 8, strings.TrimSuffix(s, "b")
		}
		if bytes, ok := config.ParseBytes(unit); ok {
			n, err = float64(bytes)/bits, nil
		}
	}
	if err != nil || n <= 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return errors.Errorf("%s is no bandwidth: write more than 0 bytes per second, such as 12.5GB/s, or bits, such as 50Gb/s", b)
	}
	*x = speedText(n)
	return nil
}

func (x speedText) MarshalJSON() ([]byte, error) {
	for unit, name := 1e12, "TGMK"; name != ""; unit, name = unit/1e3, name[1:] {
		if float64(x) >= unit {
			return json.Marshal(strconv.FormatFloat(float64(x)/unit, 'g', 4, 64) + name[:1] + "B/s")
		}
	}
	return json.Marshal(float64(x))
}

func (x *timeText) UnmarshalJSON(b []byte) error {
	d, err := time.ParseDuration(text(b))
	if n, isNumber := strconv.ParseInt(text(b), 10, 64); err != nil && isNumber == nil {
		d, err = time.Duration(n), nil
	}
	if err != nil || d < 0 {
		return errors.Errorf("%s is no time: write a duration that is not negative, such as 5us", b)
	}
	*x = timeText(d)
	return nil
}

func (x timeText) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(x).String()) }
