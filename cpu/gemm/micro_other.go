//go:build !amd64

package gemm

import "github.com/easyparallel/epl/cpu/isa"

func use(isa.Level) {} // for tests: there is one level
