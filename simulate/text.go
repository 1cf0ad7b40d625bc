// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// Changed is what becomes of a step if the cluster is another one.
type Changed struct {
	WhatIf
	*Result
	Err error // why it cannot run; then there is no result
}

// WriteText writes the result as tables: what a step takes, what each kind of device does, and what would change.
func (r *Result) WriteText(w io.Writer, changes ...Changed) error {
	var b strings.Builder
	devices := 0
	for _, d := range r.Devices {
		devices += len(d.Ranks)
	}
	fmt.Fprintf(&b, "step    %s predicted; %s, %s batches/s on %s\n", short(r.Step), words.Count(r.Batches, "batch"), digits(r.perSecond()), words.Count(devices, "device"))
	fmt.Fprintf(&b, "time    %s busy, %s bubble, %s exposed communication\n\n", percent(r.Busy()), percent(r.Bubble()), percent(r.Exposed()))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "group\tdevices\tbusy\t\tbubble\t\tcommunication\texposed\t\tpeak memory")
	for _, d := range r.Devices {
		peak := "–"
		if d.Peak > 0 {
			peak = bytesText(d.Peak)
		}
		bubble := r.Step - d.Busy - d.Exposed
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Place, ranksText(d.Ranks), short(d.Busy), r.share(d.Busy), short(bubble), r.share(bubble),
			short(d.Communication), short(d.Exposed), r.share(d.Exposed), peak)
	}
	_ = t.Flush() // into memory
	if len(changes) > 0 {
		b.WriteString("\nwhat if\n")
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "change\tstep\t\tbatches/s\t\tbusy\tbubble\texposed communication")
		row := func(name string, x *Result) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, short(x.Step), signed(float64(x.Step)/float64(r.Step)), digits(x.perSecond()),
				signed(x.perSecond()/r.perSecond()), percent(x.Busy()), percent(x.Bubble()), percent(x.Exposed()))
		}
		row("as it is", r)
		for _, c := range changes {
			if c.Err != nil {
				fmt.Fprintf(t, "%s\t%s\n", c.WhatIf, strings.TrimPrefix(c.Err.Error(), "epl: "))
				continue
			}
			row(c.String(), c.Result)
		}
		_ = t.Flush()
	}
	_, err := io.WriteString(w, trimmed(b.String()))
	return errors.Wrap(err, "epl: the simulation as text")
}

// perSecond is how many batches are trained in a second.
func (r *Result) perSecond() float64 { return float64(r.Batches) / max(r.Step, 1).Seconds() }

func (r *Result) share(d time.Duration) string { return percent(float64(d) / float64(max(r.Step, 1))) }

// trimmed is text without blanks at the end of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// ranksText lists a few ranks; of many it says how many there are.
func ranksText(ranks []int) string {
	const most = 4
	ranks = slices.Sorted(slices.Values(ranks))
	var parts []string
	for _, r := range ranks[:min(most, len(ranks))] {
		parts = append(parts, strconv.Itoa(r))
	}
	text := strings.Join(parts, ", ")
	if len(ranks) > most {
		text += fmt.Sprintf(", … (%d)", len(ranks))
	}
	return text
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// signed is by how much something becomes more or less; nothing if it does not.
func signed(ratio float64) string {
	if text := fmt.Sprintf("%+.1f%%", 100*(ratio-1)); text != "+0.0%" && text != "-0.0%" {
		return text
	}
	return ""
}

// digits writes a number with three digits.
func digits(x float64) string {
	text := strconv.FormatFloat(x, 'g', 3, 64)
	if y, err := strconv.ParseFloat(text, 64); err == nil && y < 1e9 {
		return strconv.FormatFloat(y, 'f', -1, 64)
	}
	return text
}

// short writes a time with three digits.
func short(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.unit || u.unit == time.Microsecond {
			return digits(float64(d)/float64(u.unit)) + " " + u.name
		}
	}
	return ""
}

// bytesText writes a number of bytes in the unit that fits.
func bytesText(n int64) string {
	x, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, next
	}
	return digits(x) + " " + unit
}
