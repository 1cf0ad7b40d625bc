//go:build !amd64

package kernel

type level int

const portable level = 0

func detect() level { return portable }

var current level

func use(level) { fillTables() }
