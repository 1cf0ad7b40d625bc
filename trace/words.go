// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// title says what a picture or a table shows.
func (s *Step) title() string {
	text := plain(s.Program) + ", " + s.which()
	if s.Pipeline.Stages > 0 {
		text += ": " + plain(s.Pipeline.String())
	}
	return text
}

// which says which step it is.
func (s *Step) which() string {
	switch {
	case s.compared != nil:
		return "predicted and measured"
	case s.Predicted:
		return "predicted"
	}
	return fmt.Sprintf("step %d", s.Number)
}

// summary is what matters of the report: the bubble of a pipeline; without one, what communication costs. It is nothing if
// there is neither.
func (s *Step) summary(r *Report) string {
	if s.compared != nil {
		return s.compared.summary()
	}
	if math.IsNaN(r.Bubble) {
		if r.Total.Communication == 0 {
			return ""
		}
		return fmt.Sprintf("exposed communication %s of the devices' time; %s of it is hidden behind computation",
			percent(r.exposed()), percent(r.hidden()))
	}
	text := "bubble " + percent(r.Bubble) + " " + s.how()
	if !math.IsNaN(r.Ideal) {
		text += ", " + percent(r.Ideal) + " ideal"
	}
	return text
}

// how says where the numbers are from.
func (s *Step) how() string {
	if s.Predicted {
		return "predicted"
	}
	return "measured"
}

// exposed is the part of the devices' time in which they communicated and computed nothing.
func (r *Report) exposed() float64 {
	return float64(r.Total.Exposed) / float64(max(r.Span*time.Duration(len(r.Devices)), 1))
}

// hidden is the part of the communication during which devices computed something.
func (r *Report) hidden() float64 {
	return 1 - float64(r.Total.Exposed)/float64(max(r.Total.Communication, 1))
}

// clocks is the reservation about times of several workers; nothing for one.
func (s *Step) clocks() string {
	if s.Workers < 2 {
		return ""
	}
	return fmt.Sprintf("Times of %d workers, each on the clock of its machine: between machines they may be off by as much as the clocks are.", s.Workers)
}

// label names a device's row. Stages are not named where there is only one.
func (d DeviceReport) label(p Pipeline) string {
	var parts []string
	if d.Replica >= 0 {
		parts = append(parts, fmt.Sprintf("replica %d", d.Replica))
	}
	if p.Stages > 1 && len(d.Stages) > 0 {
		word := "stage "
		if len(d.Stages) > 1 {
			word = "stages "
		}
		var numbers []string
		for _, s := range d.Stages {
			numbers = append(numbers, strconv.Itoa(s))
		}
		if len(numbers) > 4 {
			numbers = append(numbers[:3], "…")
		}
		parts = append(parts, word+strings.Join(numbers, ", "))
	}
	return strings.Join(append(parts, cmp.Or(d.name, deviceName(d.Device))), " · ")
}

// describe says all about an event, in lines.
func (e Event) describe(zero time.Time) string {
	var lines []string
	switch t := e.Task; {
	case e.communicates() && e.Op != "":
		lines = append(lines, plain(e.Op))
	case t.Kind == "" && e.Op != "":
		lines = append(lines, fmt.Sprintf("%s: %s", e.Kind, plain(e.Op)))
	case t.Kind == "":
		lines = append(lines, string(e.Kind))
	case t.Micro < 0:
		lines = append(lines, fmt.Sprintf("%s of stage %d", t.Kind, t.Stage))
	default:
		lines = append(lines, fmt.Sprintf("%s of micro-batch %d, stage %d", t.Kind, t.Micro, t.Stage))
	}
	if e.Name != "" {
		lines = append(lines, plain(e.Name))
	}
	lines = append(lines, fmt.Sprintf("%s, from %s", duration(e.End.Sub(e.Start)), duration(e.Start.Sub(zero))))
	if e.Bytes > 0 {
		text := fmt.Sprintf("%d bytes", e.Bytes)
		if r := e.rate(); r > 0 {
			text += fmt.Sprintf(", %s GB/s", digits(r))
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// plain keeps text of the user, or of a file, from spoiling a terminal or a picture.
func plain(text string) string {
	const longest = 100
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text))
	if len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return string(runes)
}

// duration writes a time with three digits, in the unit that fits.
func duration(d time.Duration) string {
	unit, name := unitOf(d)
	if d == 0 {
		return "0 " + name
	}
	return digits(float64(d)/float64(unit)) + " " + name
}

// digits writes a number with three of them.
func digits(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*f", min(max(0, 2-int(math.Floor(math.Log10(math.Abs(x))))), 9), x)
}

// bytesText writes a number of bytes, in the unit that fits.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	x, i := float64(n), 0
	for ; x >= 1024 && i < len(units)-1; i++ {
		x /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return digits(x) + " " + units[i]
}

func unitOf(d time.Duration) (time.Duration, string) {
	switch {
	case d >= time.Second:
		return time.Second, "s"
	case d >= time.Millisecond || d == 0:
		return time.Millisecond, "ms"
	}
	return time.Microsecond, "µs"
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func share(part, of time.Duration) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(of, 1)))
}
