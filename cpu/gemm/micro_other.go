//go:build !amd64

package gemm

type level int

const portable level = 0

func detect() level { return portable }

func use(level) {}
