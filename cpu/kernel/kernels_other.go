//go:build !amd64

package kernel

import "github.com/easyparallel/epl/cpu/isa"

var current isa.Level

func use(isa.Level) { fillTables() }
