// Package hostmem is memory of a machine that a launcher holds for its workers: it outlives them, and is gone with the launcher, however that ends.
//
// A launcher makes a [Pool] of files that are nowhere but in memory, and hands it to its workers in a variable of their environment. Workers open it, and keep in it what
// the workers that are started after them may need.
package hostmem

import (
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Env is the variable that tells a worker of the pool of its launcher.
const Env = "EPL_COPIES"

// Name is what tells a pool from those of other launchers, and where its files are.
type Name struct {
	// Began is when the generation of the worker that is told began: it tells generations apart, also those of a launcher that was started again.
	Began int64
	ID    string
	Files []string
}

// String is how a pool is written in [Env].
func (n Name) String() string {
	return strings.Join(append([]string{strconv.FormatInt(n.Began, 10), n.ID}, n.Files...), ",")
}

// Parse reads what String wrote.
func Parse(text string) (n Name, err error) {
	parts := strings.Split(text, ",")
	n.Began, err = strconv.ParseInt(parts[0], 10, 64)
	if err != nil || len(parts) < 3 {
		return n, errors.Errorf("epl: %s=%q is not what epl-launch writes; leave it unset", Env, text)
	}
	n.ID, n.Files = parts[1], parts[2:]
	return n, nil
}
