// Package cost estimates what the ops of a program cost: floating-point operations, bytes moved, bytes kept for
// backward, and time on a [Machine].
//
// It takes ops as recorded and looks at nothing but their attributes and shapes. The numbers are for comparing parts of
// a program with each other, to balance them; they do not predict how long a step takes to the millisecond. A dim that
// is known only when the program runs counts as 1.
package cost
